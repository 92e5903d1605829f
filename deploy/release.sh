#!/usr/bin/env bash
# Writes everything that a release consists of to dist/release: images for both architectures with lists of what is in them,
# the plain manifest, the chart, the kubectl plugin, and, last, SHA256SUMS: without that file it is no release.
# usage: deploy/release.sh    (from anywhere; "make release")
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
source versions.env
version=$(sed -n 's/^appVersion: //p' deploy/chart/nodelvm/Chart.yaml)
out=$root/dist/release
cache=${NODELVM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nodelvm}
export CGO_ENABLED=0

stop() {
	echo "release: $*" >&2
	exit 1
}

images() {
	for arch in amd64 arm64; do
		(cd deploy/image && go run -trimpath ./cmd/image --arch $arch --out "$out/nodelvm-$version-$arch.tar")
		(cd deploy/image && go run -trimpath ./cmd/sbom "$out/nodelvm-$version-$arch.tar") >"$out/nodelvm-$version-$arch.cdx.json"
	done
}

# plugin packs kubectl's plugin as krew wants it, and fills in krew's manifest.
plugin() {
	local scratch manifest
	scratch=$(mktemp -d)
	manifest=$(sed "s/VERSION/$version/" deploy/krew/nodelvm.yaml)
	cp LICENSE deploy/krew/kubectl_complete-nodelvm "$scratch"
	for target in linux-amd64 linux-arm64 darwin-amd64 darwin-arm64; do
		local archive=$out/kubectl-nodelvm-$target.tar.gz key=SHA256_${target//-/_}
		GOOS=${target%-*} GOARCH=${target#*-} go build -trimpath -buildvcs=false -ldflags="-s -w -X main.version=$version" \
			-o "$scratch/kubectl-nodelvm" ./cmd/kubectl-nodelvm
		tar -C "$scratch" --owner=0 --group=0 --mtime=@0 --sort=name -cf - . | gzip -n >"$archive"
		manifest=${manifest//${key^^}/$(sha256sum "$archive" | cut -d' ' -f1)}
	done
	rm -r "$scratch"
	[[ $manifest != *SHA256_* ]] || stop "deploy/krew/nodelvm.yaml names an archive that is not made"
	echo "$manifest" >"$out/krew-nodelvm.yaml"
}

# The database of vulnerabilities is at vuln.go.dev; GOVULNDB names a copy.
vulnerabilities() {
	local tool=$cache/tools/govulncheck-$GOVULNCHECK_VERSION code=0
	if [ ! -x "$tool" ]; then
		GOBIN=$cache/tools/build go install -trimpath "golang.org/x/vuln/cmd/govulncheck@$GOVULNCHECK_VERSION"
		mv "$cache/tools/build/govulncheck" "$tool"
	fi
	"$tool" ./cmd/... || code=$?
	case $code in
	0) ;;
	3) stop "govulncheck found vulnerabilities that the driver reaches (above): update what has them" ;;
	*) stop "govulncheck could not look (exit code $code): it reads its database from ${GOVULNDB:-https://vuln.go.dev}; let it reach that, or set GOVULNDB to a copy" ;;
	esac
}

rm -rf "$out"
mkdir -p "$out"
images
(cd deploy/render && go run -trimpath . --package "$out")
cp deploy/nodelvm.yaml "$out/nodelvm-$version.yaml"
cp deploy/janitor.yaml "$out/nodelvm-janitor-$version.yaml"
plugin
vulnerabilities
(cd "$out" && sha256sum -- * >SHA256SUMS)
echo "release $version is in $out:"
ls -l "$out"
