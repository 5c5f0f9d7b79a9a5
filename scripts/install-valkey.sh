#!/bin/sh
# Makes sure that there is a valkey-server, and prints its path: see bring.sh. It shares its
# libraries with redis-server, which install-redis.sh brings.
export program=valkey-server suffix=-backports packages='valkey-server valkey-tools'
export missing="Nothing was tested on Valkey."
export cure="Install Valkey 8 so that valkey-server is on PATH."
exec "$(dirname "$0")/bring.sh"
