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
        # Made in a folder of its own and moved up, the file that says "done"
        # last: a pod that is killed in between starts anew.
        mkdir -p "$PGDATA"
        rm -rf "$PGDATA/.new"
        initdb --auth=trust --encoding=UTF8 --locale=C.UTF-8 --pgdata="$PGDATA/.new"
        echo 'host all all all trust' >>"$PGDATA/.new/pg_hba.conf"
        for file in $(ls "$PGDATA/.new" | grep -vx PG_VERSION) PG_VERSION; do
            rm -rf "${PGDATA:?}/$file"
            mv "$PGDATA/.new/$file" "$PGDATA/$file"
        done
        rmdir "$PGDATA/.new"
    fi
    chmod 0700 "$PGDATA" 2>/dev/null || true # not ours if it is a volume's root; postgres tells if it minds
    set -- "$@" -c listen_addresses='*' -c unix_socket_directories=/tmp -c jit=off
fi
exec "$@"
