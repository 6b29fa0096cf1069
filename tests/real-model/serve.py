"""Serves a GGUF model with llama.cpp's own HTTP server: serve.py MODEL PORT [CHAT_TEMPLATE_FILE]"""

import sys
import time
from pathlib import Path

import xllamacpp

model, port = sys.argv[1], int(sys.argv[2])
params = xllamacpp.CommonParams()
params.model.path = model
params.hostnames = ["127.0.0.1"]
params.port = port
params.n_ctx = 8192
params.n_parallel = 1
params.use_jinja = True
# More threads than idle cores make the server much slower.
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.warmup = False
if len(sys.argv) > 3:
    params.chat_template = Path(sys.argv[3]).read_text()
server = xllamacpp.Server(params)
print("ready", server.listening_address, flush=True)
while True:
    time.sleep(3600)
