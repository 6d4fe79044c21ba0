#!/bin/sh
mount /srv/models
exec llama-server -m /srv/models/a -c 4096 -np 2
