#!/bin/sh
llama-server -m /srv/m -c 8192 -np "$(nproc)"
