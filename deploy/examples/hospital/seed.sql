-- People and events of the demo hospital; load schema.sql first. All of it is invented.
--
-- A generator in SQL that SQLite and PostgreSQL both run: one seed (look for 20251110), integer
-- arithmetic, word lists. It gives the same rows on both databases, every time. It looks at no clock:
-- "today" is day 1055, 2026-11-21, and day 0 is 2024-01-01, a Monday.
--
--   seed_random, seed_calendar, seed_clock   chance and time as tables
--   seed_first/_last, seed_street, …         words
--   seed_condition, seed_step                what is wrong, and what is done about it when
--   seed_patient, seed_episode               who has what
--
-- The seed_ tables are dropped at the end.

-- === Chance ===

-- Six streams of the multiplicative congruential kind (modulus 2^31 - 1). Each purpose reads its own
-- rows: people 1–320, staff 361–401, episodes from 403, admissions from 1410, appointments from 3110, records from 6430.
CREATE TABLE seed_random (
  n INTEGER PRIMARY KEY,
  a BIGINT NOT NULL, b BIGINT NOT NULL, c BIGINT NOT NULL,
  d BIGINT NOT NULL, e BIGINT NOT NULL, f BIGINT NOT NULL
);

INSERT INTO seed_random
WITH RECURSIVE
  seed(s) AS (SELECT CAST(20251110 AS BIGINT)),
  stream(n, a, b, c, d, e, f) AS (
    SELECT 0, s, s * 3 + 1, s * 5 + 2, s * 7 + 3, s * 11 + 4, s * 13 + 5 FROM seed
    UNION ALL
    SELECT n + 1,
           a * 48271 % 2147483647, b * 69621 % 2147483647, c * 16807 % 2147483647,
           d * 39373 % 2147483647, e * 45991 % 2147483647, f * 40692 % 2147483647
    FROM stream
    WHERE n < 16100
  )
SELECT n, a, b, c, d, e, f FROM stream;

-- === Time ===

-- Days from 2023-01-01 (day -365) to 2027-12-31.
CREATE TABLE seed_calendar (day INTEGER PRIMARY KEY, date TEXT NOT NULL);

INSERT INTO seed_calendar
WITH
  months(y, m, days) AS (
    SELECT y.n, m.n,
           CASE WHEN m.n = 2 THEN CASE WHEN y.n % 4 = 0 THEN 29 ELSE 28 END
                WHEN m.n IN (4, 6, 9, 11) THEN 30
                ELSE 31 END
    FROM seed_random y CROSS JOIN seed_random m
    WHERE y.n BETWEEN 2023 AND 2027 AND m.n BETWEEN 1 AND 12
  ),
  starts(y, m, days, first) AS (
    SELECT y, m, days, SUM(days) OVER (ORDER BY y, m) - days - 365 FROM months
  )
SELECT s.first + d.n - 1,
       CAST(s.y AS TEXT) || '-' || substr(CAST(100 + s.m AS TEXT), 2, 2)
         || '-' || substr(CAST(100 + d.n AS TEXT), 2, 2)
FROM starts s JOIN seed_random d ON d.n BETWEEN 1 AND s.days;

-- The minutes of a day as the second half of an instant.
CREATE TABLE seed_clock (minute INTEGER PRIMARY KEY, time TEXT NOT NULL);

INSERT INTO seed_clock
SELECT n, 'T' || substr(CAST(100 + n / 60 AS TEXT), 2, 2)
            || ':' || substr(CAST(100 + n % 60 AS TEXT), 2, 2) || ':00Z'
FROM seed_random WHERE n < 1440;

-- === House and staff ===

INSERT INTO departments (department_id, name) VALUES
  ('MED', 'Medicine'), ('CAR', 'Cardiology'), ('SUR', 'Surgery'), ('NEU', 'Neurology'), ('PAE', 'Paediatrics');

INSERT INTO wards (ward_id, name, department_id, beds) VALUES
  ('W1', 'General Medicine', 'MED', 28),
  ('W2', 'Cardiology', 'CAR', 24),
  ('W3', 'Orthopaedics and Surgery', 'SUR', 26),
  ('W4', 'Respiratory Medicine', 'MED', 22),
  ('W5', 'Neurology', 'NEU', 20),
  ('W6', 'Paediatrics', 'PAE', 18);

-- Doctors are 1–18 and nurses 19–36, three to a ward in the order of the wards.
CREATE TABLE seed_staff (no INTEGER PRIMARY KEY, staff_id TEXT NOT NULL, full_name TEXT NOT NULL);

INSERT INTO seed_staff (no, staff_id, full_name) VALUES
  (1, 'dr.lindqvist', 'Dr Astrid Lindqvist'), (2, 'dr.osei', 'Dr Kwame Osei'), (3, 'dr.marchetti', 'Dr Paola Marchetti'),
  (4, 'dr.yenji', 'Dr Mika Yenji'), (5, 'dr.haddad', 'Dr Karim Haddad'), (6, 'dr.castillo', 'Dr Lucía Castillo'),
  (7, 'dr.novak', 'Dr Jan Novák'), (8, 'dr.fitzgerald', 'Dr Niamh Fitzgerald'), (9, 'dr.rahman', 'Dr Imran Rahman'),
  (10, 'dr.okafor', 'Dr Chidi Okafor'), (11, 'dr.tanaka', 'Dr Haruka Tanaka'), (12, 'dr.weber', 'Dr Klaus Weber'),
  (13, 'dr.petrova', 'Dr Irina Petrova'), (14, 'dr.silva', 'Dr Rafael Silva'), (15, 'dr.andersen', 'Dr Lise Andersen'),
  (16, 'dr.nguyen', 'Dr Nguyễn Thu Hà'), (17, 'dr.kowalczyk', 'Dr Marek Kowalczyk'), (18, 'dr.mensah', 'Dr Abena Mensah'),
  (19, 'nurse.oduya', 'Grace Oduya'), (20, 'nurse.hill', 'Martin Hill'), (21, 'nurse.sato', 'Emi Sato'),
  (22, 'nurse.joy', 'Joy Whitfield'), (23, 'nurse.alvarez', 'Inés Álvarez'), (24, 'nurse.bakker', 'Daan Bakker'),
  (25, 'nurse.kaur', 'Harpreet Kaur'), (26, 'nurse.moreau', 'Élise Moreau'), (27, 'nurse.doyle', 'Cian Doyle'),
  (28, 'nurse.adeyemi', 'Tolu Adeyemi'), (29, 'nurse.lehmann', 'Petra Lehmann'), (30, 'nurse.santos', 'Bruno Santos'),
  (31, 'nurse.yilmaz', 'Selin Yılmaz'), (32, 'nurse.reyes', 'Carmela Reyes'), (33, 'nurse.brandt', 'Tomas Brandt'),
  (34, 'nurse.clarke', 'Amelia Clarke'), (35, 'nurse.tran', 'Trần Minh Khôi'), (36, 'nurse.ferrari', 'Giulia Ferrari'),
  (37, 'billing.ruiz', 'Teresa Ruiz'), (38, 'billing.hughes', 'Owen Hughes'), (39, 'billing.patel', 'Nisha Patel'),
  (40, 'auditor.lee', 'Miriam Lee'), (41, 'auditor.stein', 'Jonas Stein');

INSERT INTO staff (staff_id, full_name, role, ward, email, phone, hired_on)
SELECT s.staff_id, s.full_name,
       CASE WHEN s.no <= 18 THEN 'Doctor' WHEN s.no <= 36 THEN 'Nurse' WHEN s.no <= 39 THEN 'Billing' ELSE 'Auditor' END,
       CASE WHEN s.no <= 36 THEN 'W' || CAST((s.no - 1) % 18 / 3 + 1 AS TEXT) END,
       s.staff_id || '@hospital.example',
       '+1 206 555 ' || substr(CAST(10100 + s.no AS TEXT), 2, 4),
       CAST(2005 + r.a % 19 AS TEXT) || '-' || substr(CAST(101 + r.b % 12 AS TEXT), 2, 2) || '-01'
FROM seed_staff s JOIN seed_random r ON r.n = 360 + s.no;

-- === Words ===

-- Twelve languages; given and family names match, spelt as their owners do and plainly for e-mail.
CREATE TABLE seed_first (
  language INTEGER NOT NULL, sex TEXT NOT NULL, i INTEGER NOT NULL, name TEXT NOT NULL, plain TEXT NOT NULL,
  PRIMARY KEY (language, sex, i)
);

INSERT INTO seed_first (language, sex, i, name, plain) VALUES
  (0,'F',0,'Eleanor','eleanor'),(0,'F',1,'Ruth','ruth'),(0,'F',2,'Hannah','hannah'),(0,'F',3,'Margaret','margaret'),(0,'F',4,'Jane','jane'),
  (0,'M',0,'Thomas','thomas'),(0,'M',1,'George','george'),(0,'M',2,'Samuel','samuel'),(0,'M',3,'Alfred','alfred'),(0,'M',4,'Neil','neil'),
  (1,'F',0,'María José','mariajose'),(1,'F',1,'Lucía','lucia'),(1,'F',2,'Carmen','carmen'),(1,'F',3,'Begoña','begona'),(1,'F',4,'Ximena','ximena'),
  (1,'M',0,'Javier','javier'),(1,'M',1,'Íñigo','inigo'),(1,'M',2,'Mateo','mateo'),(1,'M',3,'Andrés','andres'),(1,'M',4,'Joaquín','joaquin'),
  (2,'F',0,'Ngozi','ngozi'),(2,'F',1,'Folake','folake'),(2,'F',2,'Amara','amara'),(2,'F',3,'Yetunde','yetunde'),(2,'F',4,'Ifeoma','ifeoma'),
  (2,'M',0,'Emeka','emeka'),(2,'M',1,'Tunde','tunde'),(2,'M',2,'Obinna','obinna'),(2,'M',3,'Sola','sola'),(2,'M',4,'Kelechi','kelechi'),
  (3,'F',0,'Thị Ánh','anh'),(3,'F',1,'Thu Hương','huong'),(3,'F',2,'Bích Ngọc','ngoc'),(3,'F',3,'Mai Lan','lan'),(3,'F',4,'Kim Chi','chi'),
  (3,'M',0,'Văn Dũng','dung'),(3,'M',1,'Quang Huy','huy'),(3,'M',2,'Đức Thịnh','thinh'),(3,'M',3,'Bảo Long','long'),(3,'M',4,'Tuấn Kiệt','kiet'),
  (4,'F',0,'Agnieszka','agnieszka'),(4,'F',1,'Zofia','zofia'),(4,'F',2,'Małgorzata','malgorzata'),(4,'F',3,'Wanda','wanda'),(4,'F',4,'Kinga','kinga'),
  (4,'M',0,'Paweł','pawel'),(4,'M',1,'Stanisław','stanislaw'),(4,'M',2,'Grzegorz','grzegorz'),(4,'M',3,'Jakub','jakub'),(4,'M',4,'Zbigniew','zbigniew'),
  (5,'F',0,'Layla','layla'),(5,'F',1,'Fatima','fatima'),(5,'F',2,'Noor','noor'),(5,'F',3,'Salma','salma'),(5,'F',4,'Rania','rania'),
  (5,'M',0,'Youssef','youssef'),(5,'M',1,'Omar','omar'),(5,'M',2,'Bilal','bilal'),(5,'M',3,'Tariq','tariq'),(5,'M',4,'Samir','samir'),
  (6,'F',0,'Ananya','ananya'),(6,'F',1,'Lakshmi','lakshmi'),(6,'F',2,'Priya','priya'),(6,'F',3,'Meera','meera'),(6,'F',4,'Sunita','sunita'),
  (6,'M',0,'Arjun','arjun'),(6,'M',1,'Rohan','rohan'),(6,'M',2,'Vikram','vikram'),(6,'M',3,'Suresh','suresh'),(6,'M',4,'Dev','dev'),
  (7,'F',0,'Sigrid','sigrid'),(7,'F',1,'Åsa','asa'),(7,'F',2,'Linnéa','linnea'),(7,'F',3,'Maja','maja'),(7,'F',4,'Britt','britt'),
  (7,'M',0,'Göran','goran'),(7,'M',1,'Nils','nils'),(7,'M',2,'Håkan','hakan'),(7,'M',3,'Oskar','oskar'),(7,'M',4,'Björn','bjorn'),
  (8,'F',0,'Mei','mei'),(8,'F',1,'Xiaoling','xiaoling'),(8,'F',2,'Yan','yan'),(8,'F',3,'Jingyi','jingyi'),(8,'F',4,'Hui','hui'),
  (8,'M',0,'Wei','wei'),(8,'M',1,'Jianguo','jianguo'),(8,'M',2,'Haoran','haoran'),(8,'M',3,'Ming','ming'),(8,'M',4,'Zhiyuan','zhiyuan'),
  (9,'F',0,'Beatriz','beatriz'),(9,'F',1,'Luana','luana'),(9,'F',2,'Conceição','conceicao'),(9,'F',3,'Inês','ines'),(9,'F',4,'Tainá','taina'),
  (9,'M',0,'João','joao'),(9,'M',1,'Thiago','thiago'),(9,'M',2,'Caetano','caetano'),(9,'M',3,'Luís','luis'),(9,'M',4,'Otávio','otavio'),
  (10,'F',0,'Elif','elif'),(10,'F',1,'Zeynep','zeynep'),(10,'F',2,'Ayşe','ayse'),(10,'F',3,'Gülsüm','gulsum'),(10,'F',4,'Defne','defne'),
  (10,'M',0,'Mehmet','mehmet'),(10,'M',1,'Çağrı','cagri'),(10,'M',2,'Emre','emre'),(10,'M',3,'Kerem','kerem'),(10,'M',4,'Ömer','omer'),
  (11,'F',0,'Aïssatou','aissatou'),(11,'F',1,'Geneviève','genevieve'),(11,'F',2,'Chloé','chloe'),(11,'F',3,'Mariama','mariama'),(11,'F',4,'Odile','odile'),
  (11,'M',0,'François','francois'),(11,'M',1,'Ousmane','ousmane'),(11,'M',2,'Jérôme','jerome'),(11,'M',3,'Théo','theo'),(11,'M',4,'Mamadou','mamadou');

CREATE TABLE seed_last (
  language INTEGER NOT NULL, i INTEGER NOT NULL, name TEXT NOT NULL, plain TEXT NOT NULL,
  PRIMARY KEY (language, i)
);

INSERT INTO seed_last (language, i, name, plain) VALUES
  (0,0,'Ashworth','ashworth'),(0,1,'Bellamy','bellamy'),(0,2,'Carter','carter'),(0,3,'O''Rourke','orourke'),(0,4,'Penhaligon','penhaligon'),(0,5,'Doe','doe'),(0,6,'Whitaker','whitaker'),
  (1,0,'García López','garcialopez'),(1,1,'Etxeberria','etxeberria'),(1,2,'Muñoz','munoz'),(1,3,'Quispe','quispe'),(1,4,'Ibáñez','ibanez'),(1,5,'Romero','romero'),(1,6,'Peña','pena'),
  (2,0,'Adebayo','adebayo'),(2,1,'Eze','eze'),(2,2,'Balogun','balogun'),(2,3,'Nwosu','nwosu'),(2,4,'Ogunleye','ogunleye'),(2,5,'Achebe','achebe'),(2,6,'Bello','bello'),
  (3,0,'Nguyễn','nguyen'),(3,1,'Trần','tran'),(3,2,'Lê','le'),(3,3,'Phạm','pham'),(3,4,'Võ','vo'),(3,5,'Đặng','dang'),(3,6,'Bùi','bui'),
  (4,0,'Nowak','nowak'),(4,1,'Wójcik','wojcik'),(4,2,'Mazur','mazur'),(4,3,'Kaczmarek','kaczmarek'),(4,4,'Wróbel','wrobel'),(4,5,'Zając','zajac'),(4,6,'Dudek','dudek'),
  (5,0,'Al-Masri','almasri'),(5,1,'Haddad','haddad'),(5,2,'Benali','benali'),(5,3,'Khoury','khoury'),(5,4,'Mansour','mansour'),(5,5,'Aziz','aziz'),(5,6,'El Amrani','elamrani'),
  (6,0,'Iyer','iyer'),(6,1,'Sharma','sharma'),(6,2,'Chatterjee','chatterjee'),(6,3,'Reddy','reddy'),(6,4,'Fernandes','fernandes'),(6,5,'Singh','singh'),(6,6,'Nair','nair'),
  (7,0,'Bergström','bergstrom'),(7,1,'Åkesson','akesson'),(7,2,'Lund','lund'),(7,3,'Sjöberg','sjoberg'),(7,4,'Ek','ek'),(7,5,'Nordin','nordin'),(7,6,'Hedlund','hedlund'),
  (8,0,'Zhang','zhang'),(8,1,'Li','li'),(8,2,'Chen','chen'),(8,3,'Ouyang','ouyang'),(8,4,'Xu','xu'),(8,5,'Huang','huang'),(8,6,'Lin','lin'),
  (9,0,'da Conceição','daconceicao'),(9,1,'Souza','souza'),(9,2,'Araújo','araujo'),(9,3,'Falcão','falcao'),(9,4,'Teixeira','teixeira'),(9,5,'Brandão','brandao'),(9,6,'Lima','lima'),
  (10,0,'Yıldız','yildiz'),(10,1,'Demir','demir'),(10,2,'Şahin','sahin'),(10,3,'Öztürk','ozturk'),(10,4,'Kaya','kaya'),(10,5,'Aydın','aydin'),(10,6,'Koç','koc'),
  (11,0,'Diop','diop'),(11,1,'Lefèvre','lefevre'),(11,2,'Ndiaye','ndiaye'),(11,3,'d''Aubigny','daubigny'),(11,4,'Traoré','traore'),(11,5,'Girard','girard'),(11,6,'Bâ','ba');

CREATE TABLE seed_street (i INTEGER PRIMARY KEY, name TEXT NOT NULL);

INSERT INTO seed_street (i, name) VALUES
  (0,'Alder Street'),(1,'Harbour View'),(2,'Mill Lane'),(3,'Quarry Road'),(4,'Orchard Close'),(5,'Station Road'),
  (6,'Lime Avenue'),(7,'Ferry Street'),(8,'Chapel Hill'),(9,'Foundry Row'),(10,'Larkspur Way'),(11,'Old Market Square'),
  (12,'Heron Court'),(13,'Saltmarsh Drive'),(14,'Copper Beech Road'),(15,'Tannery Yard'),(16,'Windmill Rise');

CREATE TABLE seed_town (i INTEGER PRIMARY KEY, name TEXT NOT NULL, zip INTEGER NOT NULL, area TEXT NOT NULL);

INSERT INTO seed_town (i, name, zip, area) VALUES
  (0,'Fairhaven, WA',98100,'206'),(1,'Northbrook, WA',98210,'425'),(2,'Elmsford, WA',98320,'360'),(3,'Kingsmere, WA',98430,'253'),
  (4,'Port Salis, WA',98540,'564'),(5,'Cedar Falls, WA',98650,'509'),(6,'Ashgrove, OR',97110,'503'),(7,'Millbrook, OR',97220,'541'),
  (8,'Saint Aubin, OR',97330,'971'),(9,'Westering, OR',97440,'458'),(10,'Lakeheath, ID',83610,'208');

-- Twelve phrases to a topic.
CREATE TABLE seed_phrase (topic TEXT NOT NULL, i INTEGER NOT NULL, words TEXT NOT NULL, PRIMARY KEY (topic, i));

INSERT INTO seed_phrase (topic, i, words) VALUES
  ('Treatment',0,'Well tolerated so far'),('Treatment',1,'First dose given on the ward'),('Treatment',2,'Patient counselled on side effects'),
  ('Treatment',3,'No interaction with current medication'),('Treatment',4,'Mild nausea in the first days, settled since'),
  ('Treatment',5,'Good adherence reported'),('Treatment',6,'Family present for the explanation'),('Treatment',7,'Renal function checked beforehand'),
  ('Treatment',8,'Patient prefers to take it in the morning'),('Treatment',9,'Written information handed over'),
  ('Treatment',10,'Continued from home medication'),('Treatment',11,'Allergies checked and none relevant'),
  ('Progress Note',0,'Feels better than last week, sleeping through the night'),('Progress Note',1,'Comfortable at rest, eating and drinking normally'),
  ('Progress Note',2,'Reports tiredness, otherwise no new complaints'),('Progress Note',3,'Walked the corridor twice without help'),
  ('Progress Note',4,'Missed two doses over the weekend, reasons discussed'),('Progress Note',5,'Symptoms unchanged since the last visit'),
  ('Progress Note',6,'Observations stable, afebrile for 48 hours'),('Progress Note',7,'Pain 3 out of 10 on movement, none at rest'),
  ('Progress Note',8,'Worried about work, social worker informed'),('Progress Note',9,'Daughter helps with the medication at home'),
  ('Progress Note',10,'Lost 2 kg since the last visit, appetite returning'),('Progress Note',11,'Clear improvement, back to usual activities'),
  ('Procedure',0,'Explained and agreed to in writing'),('Procedure',1,'Started as planned, no complications'),('Procedure',2,'Well tolerated'),
  ('Procedure',3,'Risks and alternatives discussed beforehand'),('Procedure',4,'Carried out without complications'),
  ('Procedure',5,'Patient satisfied so far'),('Procedure',6,'Instructions given in writing'),('Procedure',7,'Supervised by the ward team'),
  ('Procedure',8,'Good response'),('Procedure',9,'No adverse events'),('Procedure',10,'Checklist completed'),('Procedure',11,'Tolerated better than expected'),
  ('Child Note',0,'Playing and eating again'),('Child Note',1,'Slept through the night, parents relieved'),('Child Note',2,'Mother stays on the ward, questions answered'),
  ('Child Note',3,'Missed school for three days'),('Child Note',4,'Back at school, no problems reported'),('Child Note',5,'Symptoms unchanged since the last visit'),
  ('Child Note',6,'Growth along the 50th centile'),('Child Note',7,'Father trained in giving the medication'),('Child Note',8,'Drinks well, afebrile for 24 hours'),
  ('Child Note',9,'Sports allowed again'),('Child Note',10,'Tearful at night, play specialist involved'),('Child Note',11,'Clear improvement, back to usual activities'),
  ('plan',0,'Review in two weeks'),('plan',1,'Repeat in four weeks'),('plan',2,'Discussed with the patient, who agrees'),
  ('plan',3,'General practitioner informed by letter'),('plan',4,'Continue as before'),('plan',5,'Follow up in clinic in three months'),
  ('plan',6,'Return at once if symptoms worsen'),('plan',7,'Dietary advice given'),('plan',8,'Presented at the morning meeting, no change of plan'),
  ('plan',9,'Specialist nurse to call next week'),('plan',10,'Lifestyle changes discussed'),('plan',11,'Medication list updated'),
  ('outcome',0,'Discharged home, well'),('outcome',1,'Discharged home with community nursing'),('outcome',2,'Discharged home, clinic in six weeks'),
  ('outcome',3,'Discharged on new medication, letter sent'),('outcome',4,'Transferred to rehabilitation'),('outcome',5,'Discharged home, symptoms resolved'),
  ('outcome',6,'Discharged home, blood test in one week'),('outcome',7,'Discharged against advice, risks explained'),
  ('outcome',8,'Discharged home with a carer'),('outcome',9,'Discharged home, clinic in ten days'),
  ('outcome',10,'Discharged home, family informed'),('outcome',11,'Discharged home, telephone review arranged'),
  ('allergy',0,'None known'),('allergy',1,'None known'),('allergy',2,'Strawberries (hives)'),('allergy',3,'None known'),('allergy',4,'Latex'),
  ('allergy',5,'None known'),('allergy',6,'Bee venom'),('allergy',7,'None known'),('allergy',8,'Peanuts'),('allergy',9,'None known'),
  ('allergy',10,'Adhesive plaster'),('allergy',11,'None known'),
  ('blood',0,'O+'),('blood',1,'A+'),('blood',2,'O+'),('blood',3,'A+'),('blood',4,'B+'),('blood',5,'O+'),('blood',6,'A+'),
  ('blood',7,'O-'),('blood',8,'A-'),('blood',9,'AB+'),('blood',10,'B-'),('blood',11,'AB-'),
  ('sealed',0,'Psychiatric consultation'),('sealed',1,'HIV test, result negative'),('sealed',2,'Assessment of alcohol use'),
  ('sealed',3,'Conversation about domestic violence'),('sealed',4,'Genetic test result'),('sealed',5,'Psychiatric consultation'),
  ('sealed',6,'Assessment of opioid use'),('sealed',7,'Sexual health screening'),('sealed',8,'Occupational health matter'),
  ('sealed',9,'Psychiatric consultation'),('sealed',10,'Genetic counselling'),('sealed',11,'Safeguarding conversation');

-- === Conditions ===

-- Five to a ward. Ages in years; laboratory values as integers, in tenths where `tenths` is 1, getting from
-- `worst` to `best` under treatment.
CREATE TABLE seed_condition (
  ward_no INTEGER NOT NULL, slot INTEGER NOT NULL, youngest INTEGER NOT NULL, oldest INTEGER NOT NULL,
  name TEXT NOT NULL, code TEXT NOT NULL, complaint TEXT NOT NULL, finding_a TEXT NOT NULL, finding_b TEXT NOT NULL,
  treatment_a TEXT NOT NULL, treatment_b TEXT NOT NULL, investigation TEXT NOT NULL, result TEXT NOT NULL,
  lab TEXT NOT NULL, unit TEXT NOT NULL, worst INTEGER NOT NULL, best INTEGER NOT NULL, jitter INTEGER NOT NULL,
  tenths INTEGER NOT NULL, normal_low INTEGER NOT NULL, normal_high INTEGER NOT NULL,
  PRIMARY KEY (ward_no, slot)
);

INSERT INTO seed_condition VALUES
  (1,0,32,88,'Type 2 diabetes mellitus','E11.9','High blood sugar with thirst and weight loss','Fasting glucose raised on two occasions','Found at a routine check',
   'Metformin 500mg twice daily','Empagliflozin 10mg daily','Retinal screening','No retinopathy','HbA1c','mmol/mol',78,50,7,0,20,48),
  (1,1,22,90,'Hypothyroidism','E03.9','Severe fatigue and swelling of the legs','TSH raised with low free T4','Slow reflexes and dry skin',
   'Levothyroxine 50mcg daily','Levothyroxine 75mcg daily','Thyroid ultrasound','Small gland, no nodules','TSH','mIU/L',112,28,14,1,4,42),
  (1,2,20,97,'Urinary tract infection','N39.0','Fever and pain in the flank','Nitrites positive on dipstick','Third episode this year',
   'Nitrofurantoin 100mg twice daily for 5 days','Trimethoprim 200mg twice daily for 7 days','Renal tract ultrasound','Normal kidneys, no obstruction','C-reactive protein','mg/L',96,4,12,0,0,5),
  (1,3,19,92,'Iron deficiency anaemia','D50.9','Dizziness and shortness of breath on exertion','Ferritin low, microcytic picture','Source of blood loss to be looked for',
   'Ferrous sulfate 200mg daily','Iron infusion 1g','Gastroscopy','Mild gastritis, no bleeding source','Haemoglobin','g/L',84,132,8,0,120,160),
  (1,4,55,97,'Chronic kidney disease, stage 3','N18.3','Decline of kidney function','eGFR below 60 for more than three months','Protein in the urine',
   'Ramipril 5mg daily','Dapagliflozin 10mg daily','Renal ultrasound','Both kidneys slightly small','eGFR','mL/min',38,52,6,0,90,120),
  (2,0,35,95,'Hypertension','I10','Severe headache with very high blood pressure','Stage 2, requires management','Confirmed by ambulatory measurement',
   'Lisinopril 10mg daily','Amlodipine 5mg daily','Electrocardiogram','Sinus rhythm, signs of left ventricular hypertrophy','Systolic blood pressure','mmHg',172,132,9,0,90,140),
  (2,1,50,97,'Atrial fibrillation','I48.91','Palpitations and light-headedness','Irregularly irregular pulse','CHA2DS2-VASc score of 3',
   'Apixaban 5mg twice daily','Bisoprolol 2.5mg daily','24-hour electrocardiogram','Atrial fibrillation throughout, rate 70 to 120','Heart rate','beats/min',128,74,12,0,50,90),
  (2,2,55,97,'Heart failure','I50.9','Breathlessness at night and swollen ankles','Ejection fraction 38%','Basal crackles and raised venous pressure',
   'Furosemide 40mg daily','Sacubitril/valsartan 49/51mg twice daily','Echocardiogram','Reduced left ventricular function','NT-proBNP','ng/L',2400,650,220,0,0,400),
  (2,3,48,92,'Angina pectoris','I20.9','Chest pain on exertion','Typical pain, relieved by rest','ST depression on the exercise test',
   'Glyceryl trinitrate spray as needed','Isosorbide mononitrate 30mg daily','Coronary CT angiogram','Moderate stenosis of the left anterior descending artery','Troponin T','ng/L',13,6,3,0,0,14),
  (2,4,30,90,'Hyperlipidaemia','E78.5','Chest discomfort, coronary disease excluded','Family history of early heart disease','QRISK3 of 14%',
   'Atorvastatin 20mg nightly','Ezetimibe 10mg daily','Carotid ultrasound','Mild plaque, no stenosis','LDL cholesterol','mmol/L',48,22,6,1,0,30),
  (3,0,68,97,'Fracture of neck of femur','S72.0','Fall at home, unable to bear weight','Leg shortened and rotated outwards','Fall from standing height',
   'Hemiarthroplasty','Alendronic acid 70mg weekly','Pelvic X-ray','Displaced intracapsular fracture','Haemoglobin','g/L',92,124,7,0,120,160),
  (3,1,45,92,'Osteoarthritis of knee','M17.9','Knee locked and swollen','Crepitus and loss of joint space','Pain on stairs, stiff in the morning',
   'Physiotherapy and paracetamol 1g as needed','Naproxen 250mg twice daily with omeprazole 20mg','Knee X-ray','Narrowed medial joint space, osteophytes','Knee flexion','degrees',82,118,6,0,120,140),
  (3,2,18,60,'Acute appendicitis','K35.80','Abdominal pain moving to the right lower side','Tenderness with guarding','Alvarado score of 8',
   'Laparoscopic appendicectomy','Co-amoxiclav 1.2g three times daily','Abdominal ultrasound','Thickened appendix, no abscess','White cell count','10^9/L',162,72,14,1,40,110),
  (3,3,28,85,'Gallstones','K80.20','Upper abdominal pain after meals','Murphy''s sign positive','Colic twice in one month',
   'Low-fat diet and diclofenac 50mg as needed','Laparoscopic cholecystectomy','Abdominal ultrasound','Several stones, duct not dilated','ALT','U/L',118,32,12,0,7,45),
  (3,4,30,80,'Rotator cuff tear','M75.1','Severe shoulder pain after lifting','Weak abduction, positive drop-arm test','Injury while lifting',
   'Shoulder physiotherapy twice weekly','Subacromial steroid injection','Shoulder MRI','Full-thickness tear of the supraspinatus','Shoulder abduction','degrees',64,148,12,0,150,180),
  (4,0,18,75,'Asthma','J45.909','Acute asthma attack','Wheeze with a reversible obstruction','Worse at night and in the cold',
   'Budesonide/formoterol 200/6mcg twice daily','Montelukast 10mg nightly','Spirometry','Obstruction, reversible after salbutamol','Peak flow','L/min',260,430,30,0,400,650),
  (4,1,48,95,'Chronic obstructive pulmonary disease','J44.9','Exacerbation with productive cough','FEV1 54% of predicted','Forty pack-years of smoking',
   'Tiotropium 18mcg daily','Prednisolone 30mg daily for 5 days','Chest X-ray','Hyperinflated lungs, no consolidation','Oxygen saturation','%',87,94,2,0,94,99),
  (4,2,20,97,'Community-acquired pneumonia','J18.9','Fever, cough and shortness of breath','Crackles at the right base','CURB-65 score of 1',
   'Amoxicillin 500mg three times daily for 5 days','Doxycycline 100mg daily for 5 days','Chest X-ray','Consolidation of the right lower lobe','C-reactive protein','mg/L',184,6,20,0,0,5),
  (4,3,25,90,'Pulmonary embolism','I26.99','Sudden chest pain and breathlessness','Wells score of 5','Long-haul flight the week before',
   'Rivaroxaban 15mg twice daily','Rivaroxaban 20mg daily','CT pulmonary angiogram','Segmental embolism on the left','D-dimer','ng/mL',2300,380,180,0,0,500),
  (4,4,30,80,'Obstructive sleep apnoea','G47.33','Fell asleep at the wheel','Apnoea-hypopnoea index of 31 per hour','Partner reports pauses in breathing',
   'CPAP at night','Weight management programme','Sleep study','Severe obstructive events, mostly supine','Epworth sleepiness score','points',17,7,3,0,0,10),
  (5,0,18,65,'Migraine','G43.909','Headache with vomiting for three days','Aura with visual disturbance','Six attacks a month',
   'Sumatriptan 50mg as needed','Propranolol 40mg twice daily','MRI brain','No abnormality','Headache days','per month',14,4,3,0,0,4),
  (5,1,18,80,'Epilepsy','G40.909','Two seizures within a day','Focal seizures with loss of awareness','Witnessed tonic-clonic seizure',
   'Levetiracetam 500mg twice daily','Lamotrigine 100mg twice daily','Electroencephalogram','Left temporal sharp waves','Levetiracetam level','mg/L',8,24,5,0,12,46),
  (5,2,52,97,'Ischaemic stroke','I63.9','Sudden weakness of the right arm','NIHSS of 6 on arrival','Facial droop and slurred speech',
   'Clopidogrel 75mg daily','Atorvastatin 80mg nightly','CT head','Infarct in the left middle cerebral artery territory','Systolic blood pressure','mmHg',168,134,8,0,90,140),
  (5,3,55,92,'Parkinson''s disease','G20','Falls and slowing of movement','Rest tremor and rigidity on the left','Reduced arm swing, small handwriting',
   'Co-careldopa 12.5/50mg three times daily','Rasagiline 1mg daily','DaTSCAN','Reduced uptake in the right putamen','UPDRS motor score','points',38,24,5,0,0,10),
  (5,4,20,60,'Multiple sclerosis','G35','Relapse with numb legs','Optic neuritis two years ago','Brisk reflexes, altered sensation below the waist',
   'Dimethyl fumarate 240mg twice daily','Methylprednisolone 1g daily for 3 days','MRI brain and spine','Two new demyelinating lesions','Lymphocyte count','10^9/L',19,12,3,1,10,40),
  (6,0,5,16,'Asthma in childhood','J45.20','Acute wheeze after a cold','Night cough, better with salbutamol','Eczema in early childhood',
   'Beclometasone 100mcg twice daily by spacer','Salbutamol 100mcg as needed','Spirometry','Mild reversible obstruction','Peak flow','L/min',170,290,25,0,250,400),
  (6,1,5,16,'Type 1 diabetes mellitus','E10.9','Ketoacidosis, new diagnosis','Positive GAD antibodies','Thirst and weight loss for three weeks',
   'Insulin glargine 10 units nightly','Insulin aspart with meals','Retinal screening','No retinopathy','HbA1c','mmol/mol',96,54,8,0,20,48),
  (6,2,4,12,'Otitis media','H66.90','High fever and ear pain','Bulging eardrum on the right','Fourth infection this winter',
   'Amoxicillin suspension 250mg three times daily','Paracetamol suspension 240mg as needed','Hearing test','Mild conductive loss on the right','Temperature','°C',394,368,4,1,360,378),
  (6,3,4,16,'Viral gastroenteritis','A08.4','Vomiting and dehydration','Dry mouth, slow capillary refill','Several cases at school',
   'Oral rehydration solution','Ondansetron 4mg once','Stool test','Norovirus detected','Sodium','mmol/L',131,139,2,0,135,145),
  (6,4,4,16,'Atopic dermatitis','L20.9','Infected eczema','Flexural eczema with excoriations','Sleep disturbed by itching',
   'Hydrocortisone 1% cream twice daily','Emollient wraps at night','Skin swab','Staphylococcus aureus, sensitive to flucloxacillin','IgE','kU/L',420,260,40,0,0,120);

-- What is recorded in one episode: when, and how often in a hundred.
CREATE TABLE seed_step (
  k INTEGER PRIMARY KEY, record_type TEXT NOT NULL, after_days INTEGER NOT NULL, spread INTEGER NOT NULL, percent INTEGER NOT NULL
);

INSERT INTO seed_step (k, record_type, after_days, spread, percent) VALUES
  (0, 'Diagnosis', 0, 1, 100),
  (1, 'Investigation', 1, 6, 65),
  (2, 'Treatment', 0, 2, 100),
  (3, 'Treatment', 21, 60, 55),
  (4, 'Lab Result', 0, 3, 100),
  (5, 'Lab Result', 40, 40, 90),
  (6, 'Lab Result', 130, 90, 75),
  (7, 'Progress Note', 3, 14, 100),
  (8, 'Progress Note', 45, 60, 85),
  (9, 'Progress Note', 160, 150, 60);

-- === Patients ===

-- Patient 1 is NUGWI. Ward and doctor go round by number; the ward's condition sets a fitting age.
CREATE TABLE seed_patient (
  no INTEGER PRIMARY KEY, patient_id TEXT NOT NULL UNIQUE, ward_no INTEGER NOT NULL, doctor_no INTEGER NOT NULL,
  slot INTEGER NOT NULL, age INTEGER NOT NULL
);

INSERT INTO seed_patient (no, patient_id, ward_no, doctor_no, slot, age)
WITH
  -- 17 consonants and 5 vowels give 122,825 codes that can be read aloud; the factor has no divisor in
  -- common with that number, so no two patients get the same code.
  coded(no, code) AS (
    SELECT n, CAST((n * 64407 + 56503) % 122825 AS INTEGER) FROM seed_random WHERE n BETWEEN 2 AND 320
  ),
  housed(no, code, ward_no, doctor_no, slot, years) AS (
    SELECT p.no, p.code, 1 + p.no % 6, 1 + p.no % 6 * 3 + p.no / 6 % 3, CAST(r.a % 5 AS INTEGER), r.b
    FROM coded p JOIN seed_random r ON r.n = p.no
  )
SELECT h.no,
       substr('BDFGHJKLMNPRSTVWZ', 1 + h.code % 17, 1)
         || substr('AEIOU', 1 + h.code / 17 % 5, 1)
         || substr('BDFGHJKLMNPRSTVWZ', 1 + h.code / 85 % 17, 1)
         || substr('BDFGHJKLMNPRSTVWZ', 1 + h.code / 1445 % 17, 1)
         || substr('AEIOU', 1 + h.code / 24565, 1),
       h.ward_no, h.doctor_no, h.slot, c.youngest + h.years % (c.oldest - c.youngest + 1)
FROM housed h JOIN seed_condition c ON c.ward_no = h.ward_no AND c.slot = h.slot;

INSERT INTO patients (patient_id, full_name, birth_date, sex, phone, email, address, insurance_no, blood_type,
                      allergies, status, attending_doctor, ward, created_at, updated_at)
VALUES ('NUGWI', 'Nuria Gwilym', '1968-04-23', 'F', '+1 206 555 0142', 'nuria.gwilym@mail.example',
        '12 Alder Street, Fairhaven, WA 98104', 'HP-4711-0815', 'A+', 'Penicillin (rash)', 'outpatient',
        'dr.yenji', 'W2', '2023-03-14T09:20:00Z', '2025-11-12T11:05:00Z');

INSERT INTO patients (patient_id, full_name, birth_date, sex, phone, email, address, insurance_no, blood_type,
                      allergies, status, attending_doctor, ward, created_at, updated_at)
WITH person(no, language, sex, first, last, town) AS (
  SELECT p.no, r.c % 12, CASE WHEN r.d % 2 = 0 THEN 'F' ELSE 'M' END, r.e % 5, r.f % 7, r.a / 5 % 11
  FROM seed_patient p JOIN seed_random r ON r.n = p.no
)
SELECT p.patient_id,
       -- Vietnamese names put the family first.
       CASE WHEN q.language = 3 THEN l.name || ' ' || f.name ELSE f.name || ' ' || l.name END,
       CAST(2026 - p.age AS TEXT) || '-' || substr(CAST(101 + r.c / 12 % 12 AS TEXT), 2, 2)
         || '-' || substr(CAST(101 + r.d / 2 % 28 AS TEXT), 2, 2),
       q.sex,
       '+1 ' || t.area || ' 555 ' || substr(CAST(10100 + p.no % 100 AS TEXT), 2, 4),
       f.plain || '.' || l.plain || CAST(p.no AS TEXT) || CASE r.b % 3 WHEN 0 THEN '@mail.example' WHEN 1 THEN '@post.example' ELSE '@inbox.example' END,
       CAST(1 + r.e / 5 % 180 AS TEXT) || ' ' || s.name || ', ' || t.name || ' ' || CAST(t.zip + r.f / 7 % 10 AS TEXT),
       'HP-' || CAST(1000 + p.no * 27 AS TEXT) || '-' || substr(CAST(10000 + r.b / 3 % 10000 AS TEXT), 2, 4),
       blood.words, allergy.words, 'outpatient', d.staff_id, 'W' || CAST(p.ward_no AS TEXT),
       c.date || registered.time, c.date || registered.time
FROM seed_patient p
JOIN person q ON q.no = p.no
JOIN seed_random r ON r.n = p.no
JOIN seed_first f ON f.language = q.language AND f.sex = q.sex AND f.i = q.first
JOIN seed_last l ON l.language = q.language AND l.i = q.last
JOIN seed_town t ON t.i = q.town
JOIN seed_street s ON s.i = r.d / 56 % 17
JOIN seed_phrase blood ON blood.topic = 'blood' AND blood.i = r.e / 900 % 12
JOIN seed_phrase allergy ON allergy.topic = 'allergy' AND allergy.i = r.f / 70 % 12
JOIN seed_staff d ON d.no = p.doctor_no
JOIN seed_calendar c ON c.day = r.a / 55 % 360 - 365
JOIN seed_clock registered ON registered.minute = 480 + r.b / 30000 % 500;

-- One to three episodes each: two conditions of the patient's ward, and for grown-ups one of general
-- medicine, where the age allows.
CREATE TABLE seed_episode (
  no INTEGER PRIMARY KEY, patient_no INTEGER NOT NULL, ward_no INTEGER NOT NULL, slot INTEGER NOT NULL, day INTEGER NOT NULL
);

INSERT INTO seed_episode (no, patient_no, ward_no, slot, day)
WITH wanted(no, patient_no, age, ward_no, slot, day) AS (
  SELECT p.no * 3 + j.n, p.no, p.age,
         CASE WHEN j.n = 2 AND p.ward_no < 6 THEN 1 ELSE p.ward_no END,
         CASE WHEN j.n = 2 AND p.ward_no BETWEEN 2 AND 5 THEN r.a % 5 ELSE (p.slot + 2 * j.n) % 5 END,
         r.b % CASE WHEN j.n = 0 THEN 780 ELSE 960 END
  FROM seed_patient p CROSS JOIN seed_random j
  JOIN seed_random r ON r.n = 400 + p.no * 3 + j.n
  WHERE j.n BETWEEN 0 AND 2
)
SELECT w.no, w.patient_no, w.ward_no, w.slot, w.day
FROM wanted w JOIN seed_condition c ON c.ward_no = w.ward_no AND c.slot = w.slot
WHERE w.age BETWEEN c.youngest AND c.oldest;

-- === Medical records ===

INSERT INTO medical_records (id, patient_id, created_at, updated_at, record_type, content, note, assigned_doctor, sealed)
VALUES
  (1, 'NUGWI', '2025-11-10T10:00:00Z', '2025-11-10T10:00:00Z', 'Diagnosis', 'Hypertension',
   'Stage 2, requires management', 'dr.yenji', FALSE),
  (2, 'NUGWI', '2025-11-09T14:30:00Z', '2025-11-09T14:30:00Z', 'Treatment', 'Lisinopril 10mg daily',
   'Well tolerated, monitor BP', 'dr.yenji', FALSE);

INSERT INTO medical_records (id, patient_id, created_at, updated_at, record_type, content, note, assigned_doctor, sealed)
WITH
  entry(patient_no, ward_no, slot, k, record_type, day, minute, updated, choice, more, cover) AS (
    SELECT e.patient_no, e.ward_no, e.slot, s.k, s.record_type,
           e.day + s.after_days + r.a % s.spread,
           -- The diagnosis is written in the morning, so that nothing of its day comes before it.
           CASE WHEN s.k = 0 THEN 480 + r.c % 220 ELSE 720 + r.c % 360 END,
           CASE WHEN r.e % 6 = 0 THEN 1 + r.e / 6 % 3 ELSE 0 END,
           r.d, r.f, CASE WHEN r.e / 18 % 5 = 0 THEN 1 + r.e / 90 % 2 ELSE 0 END
    FROM seed_episode e CROSS JOIN seed_step s
    JOIN seed_random r ON r.n = 6400 + e.no * 10 + s.k
    WHERE r.b % 100 < s.percent
    UNION ALL
    -- Sealed: one for every twenty-third patient, children excepted.
    SELECT p.no, p.ward_no, p.slot, 10, 'Progress Note', 400 + r.a % 600, 900 + r.c % 150, 0, r.d, r.f, 0
    FROM seed_patient p JOIN seed_random r ON r.n = p.no
    WHERE p.no % 23 = 7 AND p.ward_no < 6
  ),
  measured(patient_no, ward_no, slot, k, record_type, day, minute, updated, choice, more, cover, value) AS (
    SELECT n.patient_no, n.ward_no, n.slot, n.k, n.record_type, n.day, n.minute, n.updated, n.choice, n.more, n.cover,
           c.worst + (c.best - c.worst) * (n.k - 4) / 2 + n.choice % (c.jitter + 1)
    FROM entry n JOIN seed_condition c ON c.ward_no = n.ward_no AND c.slot = n.slot
  )
SELECT 2 + row_number() OVER (ORDER BY n.day, n.minute, n.patient_no, n.ward_no, n.slot, n.k),
       p.patient_id, made.date || at.time, changed.date || at.time, n.record_type,
       CASE WHEN n.k = 0 THEN c.name
            WHEN n.k = 1 THEN c.investigation
            WHEN n.k = 2 THEN c.treatment_a
            WHEN n.k = 3 THEN c.treatment_b
            WHEN n.k = 10 THEN 'Confidential: ' || secret.words
            WHEN n.k < 7 THEN c.lab || ' '
              || CASE WHEN c.tenths = 1 THEN CAST(n.value / 10 AS TEXT) || '.' || CAST(n.value % 10 AS TEXT)
                      ELSE CAST(n.value AS TEXT) END
              || ' ' || c.unit
            WHEN n.choice / 13 % 3 = 0 THEN 'Clinic visit'
            WHEN n.choice / 13 % 3 = 1 THEN 'Follow-up of ' || c.name
            ELSE 'Telephone review' END,
       CASE WHEN n.k = 0 THEN CASE WHEN n.choice % 2 = 0 THEN c.finding_a ELSE c.finding_b END
            WHEN n.k = 1 THEN c.result
            WHEN n.k = 10 THEN CASE n.choice % 3 WHEN 0 THEN 'Seen alone at own request. Not to be shared without consent'
                                                 WHEN 1 THEN 'Disclosed in confidence. Support offered and accepted'
                                                 ELSE 'Consent given for the assigned doctor only. Review in two weeks' END
            WHEN n.k BETWEEN 4 AND 6 THEN
              CASE WHEN n.value > c.normal_high THEN 'Above the reference range'
                   WHEN n.value < c.normal_low THEN 'Below the reference range'
                   ELSE 'Within the reference range' END
            ELSE comment.words END
         || CASE WHEN n.k = 10 THEN '' ELSE '. ' || plan.words END,
       d.staff_id, n.k = 10
FROM measured n
JOIN seed_patient p ON p.no = n.patient_no
JOIN seed_condition c ON c.ward_no = n.ward_no AND c.slot = n.slot
-- LEFT only so that SQLite does not begin with these: every one of them has a row.
LEFT JOIN seed_phrase comment ON comment.i = n.choice % 12 AND comment.topic =
  CASE WHEN n.k > 3 AND n.ward_no = 6 THEN 'Child Note'
       WHEN n.k > 3 THEN 'Progress Note'
       WHEN CASE n.k WHEN 2 THEN c.treatment_a ELSE c.treatment_b END LIKE '% daily%' THEN 'Treatment'
       ELSE 'Procedure' END
LEFT JOIN seed_phrase plan ON plan.topic = 'plan' AND plan.i = n.more % 12
LEFT JOIN seed_phrase secret ON secret.topic = 'sealed' AND secret.i = n.more / 12 % 12
-- Now and then a colleague of the same ward stands in.
JOIN seed_staff d ON d.no = (p.doctor_no - 1) / 3 * 3 + (p.doctor_no - 1 + n.cover) % 3 + 1
JOIN seed_calendar made ON made.day = n.day
JOIN seed_calendar changed ON changed.day = n.day + CASE WHEN n.day <= 1052 THEN n.updated ELSE 0 END
JOIN seed_clock at ON at.minute = n.minute
WHERE n.day <= 1055;

-- === Admissions ===

-- Stays of 1 to 11 days, at most one in each of four windows of 262 days, so that no two of one patient
-- overlap; one patient in eleven is in hospital today instead of in the last window.
INSERT INTO admissions (id, patient_id, admitted_at, discharged_at, admission_type, ward, bed, reason, diagnosis_code, outcome)
WITH
  stay(patient_no, start, days, minute, leaves, kind, chance) AS (
    SELECT p.no,
           CASE WHEN w.n < 3 OR p.no % 11 <> 4 THEN w.n * 262 + r.a % 250 ELSE 1046 + r.a % 9 END,
           CASE WHEN w.n < 3 OR p.no % 11 <> 4 THEN 1 + r.b % 11 ELSE 30 END,
           r.c % 1440, 570 + r.d % 300,
           CASE WHEN r.e % 10 < 6 THEN 'Emergency' WHEN r.e % 10 < 9 THEN 'Elective' ELSE 'Transfer' END,
           r.f
    FROM seed_patient p CROSS JOIN seed_random w
    JOIN seed_random r ON r.n = 1400 + p.no * 5 + w.n
    -- Every patient has been in hospital once at least: in window 1.
    WHERE w.n BETWEEN 0 AND 3 AND (w.n = 1 OR r.b / 11 % 100 < 52 OR w.n = 3 AND p.no % 11 = 4)
  ),
  timed(patient_no, start, ends, minute, leaves, kind, chance) AS (
    SELECT patient_no, start, start + days,
           -- Whoever comes by appointment comes in the morning.
           CASE kind WHEN 'Elective' THEN 420 + minute % 150 ELSE minute END,
           leaves, kind, chance
    FROM stay
  ),
  placed(patient_id, start, ends, minute, leaves, kind, chance, ward, bed, reason, code) AS (
    SELECT p.patient_id, t.start, t.ends, t.minute, t.leaves, t.kind, t.chance,
           -- A third of the adult emergencies begin in general medicine.
           CASE WHEN t.kind = 'Emergency' AND p.ward_no < 6 AND t.ends <= 1055 AND t.chance % 3 = 0 THEN 'W1'
                ELSE 'W' || CAST(p.ward_no AS TEXT) END,
           substr(CAST(101 + p.no / 6 % 18 AS TEXT), 2, 2),
           CASE t.kind WHEN 'Emergency' THEN c.complaint
                       WHEN 'Elective' THEN 'Planned treatment: ' || c.name
                       ELSE 'Transferred from another hospital: ' || c.name END,
           c.code
    FROM timed t
    JOIN seed_patient p ON p.no = t.patient_no
    JOIN seed_condition c ON c.ward_no = p.ward_no AND c.slot = p.slot
    UNION ALL
    SELECT 'NUGWI', 154, 155, 450, 660, 'Elective', 2, 'W2', '05', 'Planned treatment: 24-hour blood pressure measurement', 'R03.0'
    UNION ALL
    SELECT 'NUGWI', 678, 681, 500, 660, 'Emergency', 6, 'W2', '07', 'Severe headache with very high blood pressure', 'I10'
  )
SELECT row_number() OVER (ORDER BY q.start, q.minute, q.chance, q.leaves),
       q.patient_id, admitted.date || came.time,
       CASE WHEN q.ends <= 1055 THEN discharged.date || went.time END,
       q.kind, q.ward, q.ward || '-' || q.bed, q.reason, q.code,
       CASE WHEN q.ends <= 1055 THEN o.words END
FROM placed q
JOIN seed_calendar admitted ON admitted.day = q.start
JOIN seed_calendar discharged ON discharged.day = q.ends
JOIN seed_clock came ON came.minute = q.minute
JOIN seed_clock went ON went.minute = q.leaves
JOIN seed_phrase o ON o.topic = 'outcome' AND o.i = q.chance % 12;

UPDATE patients SET status = 'inpatient'
WHERE EXISTS (
  SELECT 1 FROM admissions a WHERE a.patient_id = patients.patient_id AND a.discharged_at IS NULL
);

UPDATE patients SET updated_at = (
  SELECT MAX(m.updated_at) FROM medical_records m WHERE m.patient_id = patients.patient_id
)
WHERE patient_id <> 'NUGWI'
  AND EXISTS (SELECT 1 FROM medical_records m WHERE m.patient_id = patients.patient_id);

-- === Appointments ===

INSERT INTO appointments (id, patient_id, doctor, scheduled_for, duration_minutes, room, reason, status, note)
WITH
  drawn(patient_id, patient_no, doctor_no, any_day, slot, minutes, reason, fate, chance) AS (
    SELECT p.patient_id, p.no,
           -- One in four is with another doctor: of the children's ward for children, of the other wards for adults.
           CASE WHEN r.b % 4 > 0 THEN p.doctor_no
                WHEN p.ward_no = 6 THEN 16 + r.b / 4 % 3
                ELSE 1 + r.b / 4 % 15 END,
           -- From day 300 of the first year to 220 days from today.
           300 + r.a % 976, r.c % 21, 20 + 10 * (r.c / 21 % 3),
           CASE r.d % 5 WHEN 0 THEN 'Blood test' WHEN 1 THEN 'Medication review: ' || c.name
                        WHEN 2 THEN 'Discussion of results' ELSE 'Follow-up: ' || c.name END,
           r.e % 100, r.f
    FROM seed_patient p
    JOIN seed_random k ON k.n BETWEEN 0 AND 9
    JOIN seed_random size ON size.n = p.no
    JOIN seed_random r ON r.n = 3100 + p.no * 10 + k.n
    JOIN seed_condition c ON c.ward_no = p.ward_no AND c.slot = p.slot
    WHERE k.n < 4 + size.f / 1000 % 5
  ),
  workday(patient_id, patient_no, doctor_no, day, minute, minutes, reason, fate, chance) AS (
    SELECT patient_id, patient_no, doctor_no, any_day + CASE WHEN any_day % 7 >= 5 THEN 2 ELSE 0 END,
           540 + 20 * slot, minutes, reason, fate, chance
    FROM drawn
    UNION ALL
    SELECT 'NUGWI', 1, 4, 681 + 14, 620, 30, 'Follow-up: Hypertension', 10, 1
    UNION ALL
    SELECT 'NUGWI', 1, 4, 680 + 106, 600, 20, 'Medication review: Hypertension', 20, 5
    UNION ALL
    SELECT 'NUGWI', 1, 5, 680 + 197, 700, 20, 'Echocardiogram', 85, 4
    UNION ALL
    SELECT 'NUGWI', 1, 4, 680 + 232, 560, 20, 'Blood test', 30, 2
    UNION ALL
    SELECT 'NUGWI', 1, 4, 680 + 400, 640, 30, 'Follow-up: Hypertension', 30, 7
    UNION ALL
    SELECT 'NUGWI', 1, 4, 680 + 498, 600, 20, 'Blood test', 30, 3
  ),
  ranked(patient_id, patient_no, doctor_no, day, minute, minutes, reason, fate, chance, of_doctor, of_patient) AS (
    SELECT patient_id, patient_no, doctor_no, day, minute, minutes, reason, fate, chance,
           row_number() OVER (PARTITION BY doctor_no, day, minute ORDER BY patient_no, chance),
           row_number() OVER (PARTITION BY patient_no, day ORDER BY minute, doctor_no, chance)
    FROM workday
  )
SELECT row_number() OVER (ORDER BY a.day, a.minute, a.doctor_no),
       a.patient_id, d.staff_id, c.date || t.time, a.minutes,
       'Clinic ' || CAST(1 + (a.doctor_no - 1) / 3 AS TEXT) || substr('ABC', CAST(1 + (a.doctor_no - 1) % 3 AS INTEGER), 1),
       a.reason,
       CASE WHEN a.day > 1055 THEN 'scheduled' WHEN a.fate < 80 THEN 'completed' WHEN a.fate < 92 THEN 'cancelled' ELSE 'no-show' END,
       CASE WHEN a.day > 1055 THEN CASE WHEN a.chance % 3 = 0 THEN 'Please bring the current medication list' END
            WHEN a.fate < 80 THEN p.words
            WHEN a.fate < 92 THEN 'Cancelled by the patient'
            ELSE 'Reminder sent' END
FROM ranked a
JOIN seed_staff d ON d.no = a.doctor_no
JOIN seed_calendar c ON c.day = a.day
JOIN seed_clock t ON t.minute = a.minute
JOIN seed_phrase p ON p.topic = 'plan' AND p.i = a.chance % 12
-- No doctor sees two patients at once, no patient comes twice a day.
WHERE a.of_doctor = 1 AND a.of_patient = 1;

-- === Shifts ===

-- Thirteen weeks back, this one, and twelve ahead. Within a week everyone keeps to one kind of shift, five
-- days of it; nurses of a ward go round early, late and night, one doctor in four weeks is on call.
INSERT INTO shifts (id, staff, ward, starts_at, ends_at, kind)
WITH
  duty(staff_no, day, turn) AS (
    -- A person's week begins on their own weekday, so that two days off lie between two kinds of shift.
    SELECT s.no, d.n, CASE WHEN s.no > 18 THEN (s.no + (d.n + s.no * 2) / 7) % 3
                           WHEN (s.no + (d.n + s.no * 2) / 7) % 4 = 0 THEN 4 ELSE 3 END
    FROM seed_staff s CROSS JOIN seed_random d
    WHERE s.no <= 36 AND d.n BETWEEN 1050 - 13 * 7 AND 1050 + 13 * 7 - 1
      AND (d.n + s.no * 2) % 7 < 5
  ),
  times(turn, kind, begins, days_later, ends) AS (
    VALUES (0, 'early', 405, 0, 915), (1, 'late', 870, 0, 1350), (2, 'night', 1305, 1, 435),
           (3, 'day', 480, 0, 1020), (4, 'on call', 1020, 1, 480)
  )
SELECT row_number() OVER (ORDER BY u.day, u.staff_no), s.staff_id,
       'W' || CAST((u.staff_no - 1) % 18 / 3 + 1 AS TEXT),
       first.date || begins.time, last.date || ends.time, t.kind
FROM duty u
JOIN times t ON t.turn = u.turn
JOIN seed_staff s ON s.no = u.staff_no
JOIN seed_calendar first ON first.day = u.day
JOIN seed_calendar last ON last.day = u.day + t.days_later
JOIN seed_clock begins ON begins.minute = t.begins
JOIN seed_clock ends ON ends.minute = t.ends;

DROP TABLE seed_episode;
DROP TABLE seed_patient;
DROP TABLE seed_step;
DROP TABLE seed_condition;
DROP TABLE seed_phrase;
DROP TABLE seed_town;
DROP TABLE seed_street;
DROP TABLE seed_last;
DROP TABLE seed_first;
DROP TABLE seed_staff;
DROP TABLE seed_clock;
DROP TABLE seed_calendar;
DROP TABLE seed_random;
