#!/bin/sh
# Makes sure that there is a prometheus, and prints its path: see bring.sh.
export program=prometheus suffix='' packages=prometheus
export missing="The dashboard and the alerts were not tested."
export cure="Install Prometheus 2.42 or newer so that prometheus is on PATH."
exec "$(dirname "$0")/bring.sh"
