#!/bin/sh
llama-server -m /srv/a -c 4096 --port 8081 &
llama-server -m /srv/b -c 8192 -np 2 --port 8082
