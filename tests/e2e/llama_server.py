"""llama.cpp's own server from the `xllamacpp` wheel as a process: MODEL SLOT_FOLDER
FLASH_ATTENTION(auto|on|off).

Prints its address once it listens, and ends with its standard input: so it never outlives who started it.
"""

import os
import sys

import xllamacpp


def main() -> None:
    model, folder, flash_attention = sys.argv[1:]
    if not os.path.isdir(folder):
        sys.exit(f"not a directory: {folder}")  # llama-server checks this at its start too
    settings = xllamacpp.CommonParams()
    settings.model.path = model
    settings.slot_save_path = folder.rstrip("/") + "/"
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.n_ctx = 8192
    settings.n_parallel = 1
    settings.n_gpu_layers = 0
    settings.cpuparams.n_threads = 1  # with more, sums may differ in the last bit
    settings.cpuparams_batch.n_threads = 1
    settings.cache_ram_mib = 0
    settings.n_ctx_checkpoints = 32
    settings.endpoint_slots = True
    settings.warmup = False
    settings.fit_params = False
    if flash_attention != "auto":
        kind = {"on": "ENABLED", "off": "DISABLED"}[flash_attention]
        settings.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{kind}")
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)


main()
