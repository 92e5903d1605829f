#!/usr/bin/env bash
# Builds the release twice, in two folders with compile caches that share nothing, and fails if a file differs.
# usage: deploy/release-check.sh    (from anywhere; "make release-check"). It compiles everything twice: half an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for build in first second; do
	# A clone of another name: no path of the checkout may be in what is built.
	git clone --quiet --shared . "$scratch/$build-checkout"
	GOCACHE=$scratch/$build-cache RELEASE_CHECK=1 RELEASE_OUT=$scratch/$build "$scratch/$build-checkout/deploy/release.sh" >/dev/null
	rm -rf "$scratch/$build-cache"
done
diff "$scratch/first/SHA256SUMS" "$scratch/second/SHA256SUMS" || {
	echo "release-check: these files differ between two builds of one commit" >&2
	exit 1
}
(cd "$scratch/second" && sha256sum --check --quiet SHA256SUMS)
echo "release-check: $(wc -l <"$scratch/first/SHA256SUMS") files, the same in both builds"
