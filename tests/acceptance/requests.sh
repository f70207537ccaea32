#!/bin/sh
# $1 the file, $2 the URL, $3 the most seconds, $4 the pause and $5 the seconds of a request.
# Each over a new connection. They end when the file is removed; and after half an hour, if no process is left
# to remove it.
: >"$1"
read -r now rest </proc/uptime
end=$((${now%.*} + $3))
answered=0
while [ -e "$1" ] && [ "${now%.*}" -lt "$end" ]; do
    if said=$(curl -q --silent --show-error --fail --max-time "$5" --output /dev/null "$2" 2>&1); then
        answered=$((answered + 1))
    else
        echo "failed: $said"
    fi
    sleep "$4"
    read -r now rest </proc/uptime
done
rm -f "$1"
echo "answered: $answered"
