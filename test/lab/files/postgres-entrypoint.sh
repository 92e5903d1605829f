#!/bin/sh
# Makes a database in $PGDATA if there is none, then becomes the given command.
set -e
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"
    chown 999:999 "$PGDATA"
    exec setpriv --reuid=999 --regid=999 --clear-groups "$0" "$@"
fi
if [ "$1" = postgres ]; then
    if [ ! -s "$PGDATA/PG_VERSION" ]; then
        # Made beside and moved in, so that a pod killed in between starts anew.
        rm -rf "$PGDATA.new"
        initdb --auth=trust --encoding=UTF8 --locale=C.UTF-8 --pgdata="$PGDATA.new"
        echo 'host all all all trust' >>"$PGDATA.new/pg_hba.conf"
        mkdir -p "$PGDATA"
        rmdir "$PGDATA"
        mv "$PGDATA.new" "$PGDATA"
    fi
    set -- "$@" -c listen_addresses='*' -c unix_socket_directories=/tmp -c jit=off
fi
exec "$@"
