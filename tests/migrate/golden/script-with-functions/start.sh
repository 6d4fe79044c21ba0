#!/usr/bin/env bash
. ./common.sh

if [ -e /dev/dri ]; then
  serve poplar 8081 -np 4
else
  serve poplar 8081 -np 2
fi
