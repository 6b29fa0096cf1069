-- shop.sqlite was created from this file. You can change the database with any SQLite client.
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    ordered_on TEXT NOT NULL,
    customer TEXT NOT NULL,
    email TEXT NOT NULL,
    item TEXT NOT NULL,
    quantity INTEGER NOT NULL,
    price_cents INTEGER NOT NULL
);

INSERT INTO orders (ordered_on, customer, email, item, quantity, price_cents) VALUES
    ('2026-10-02', 'Ada Brook', 'ada@example.org', 'teapot', 1, 2400),
    ('2026-10-05', 'Ben Castell', 'ben@example.org', 'cup', 6, 900),
    ('2026-10-09', 'Chi Nguyen', 'chi@example.org', 'teapot', 2, 2400),
    ('2026-10-21', 'Dara Okoye', 'dara@example.org', 'tray', 1, 1750),
    ('2026-11-03', 'Ada Brook', 'ada@example.org', 'cup', 2, 900),
    ('2026-11-12', 'Eli Ferro', 'eli@example.org', 'tray', 3, 1750);
