#!/bin/sh
# Puts the empty database of the image into $PGDATA if there is none, then
# becomes the given command.
set -e
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"
    chown 999:999 "$PGDATA"
    exec setpriv --reuid=999 --regid=999 --clear-groups "$0" "$@"
fi
if [ "$1" = postgres ]; then
    if [ ! -s "$PGDATA/PG_VERSION" ]; then
        # The file that says "done" comes last, after all else is on the disk:
        # a pod that is killed in between starts anew. And it is on the disk
        # before the server starts: it would be empty after a power cut, and
        # everything would start anew.
        mkdir -p "$PGDATA"
        tar -xf /database.tar -C "$PGDATA" --exclude=./PG_VERSION --no-overwrite-dir
        sync -f "$PGDATA"
        tar -xf /database.tar -C "$PGDATA" ./PG_VERSION
        sync -f "$PGDATA"
    fi
    chmod 0700 "$PGDATA" 2>/dev/null || true # not ours if it is a volume's root; postgres tells if it minds
    set -- "$@" -c listen_addresses='*' -c unix_socket_directories=/tmp -c jit=off
fi
exec "$@"
