#!/usr/bin/env bash
# Writes everything that a release consists of to dist/release: images for both architectures and their index, with lists of what is in
# them, the plain manifests, the chart, the kubectl plugin, the changes, the provenance, and, last, SHA256SUMS: without that file it is no release.
# Two builds of one commit on the same Debian packages give the same bytes (deploy/release-check.sh).
# usage: deploy/release.sh    (from anywhere; "make release")
#   RELEASE_KEY=FILE   signs SHA256SUMS with this SSH key (ssh-keygen -Y sign); without it the release is unsigned
#   RELEASE_OUT=DIR    writes there
#   RELEASE_CHECK=1    allows changes that are not committed, and does not look for known vulnerabilities
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
source versions.env
version=$(sed -n 's/^appVersion: //p' deploy/chart/nodelvm/Chart.yaml)
out=${RELEASE_OUT:-$root/dist/release}
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
	(cd deploy/image && go run -trimpath ./cmd/oci index "$version" "$out/nodelvm-$version.oci.tar" "$out/nodelvm-$version-"{amd64,arm64}.tar)
}

chart() {
	(cd deploy/render && go run -trimpath . --package "$out")
	(cd deploy/image && go run -trimpath ./cmd/oci chart "${version#v}" "$out/nodelvm-chart-${version#v}.oci.tar" "$out/nodelvm-${version#v}.tgz")
}

# changes takes the version's part of CHANGELOG.md.
changes() {
	awk -v head="## $version" 'index($0, "## ") == 1 { on = index($0, head " ") == 1 || $0 == head; next } on' CHANGELOG.md >"$out/CHANGES.md"
	grep -q . "$out/CHANGES.md" || stop "CHANGELOG.md has no section \"## $version\": write one"
}

# commit names what is built; a release is a commit without further changes.
commit() {
	local head
	head=$(git rev-parse HEAD)
	if [ -n "$(git status --porcelain)" ]; then
		[ -n "${RELEASE_CHECK:-}" ] || stop "the checkout has changes that are not committed: commit them first"
		head=$head-dirty
	fi
	echo "$head"
}

# provenance says from what the files were made: the commit, and the Debian layer of each image.
provenance() {
	local arch layer dependencies=()
	for arch in amd64 arm64; do
		layer=$(tar -xOf "$out/nodelvm-$version-$arch.tar" manifest.json | jq -r '.[0].Layers[0]')
		dependencies+=(--dependency "debian-$DEBIAN_IMAGE_SUITE-$arch=sha256:$(tar -xOf "$out/nodelvm-$version-$arch.tar" "$layer" | sha256sum | cut -d' ' -f1)")
	done
	(cd deploy/image && go run -trimpath ./cmd/provenance --version "$version" --commit "$1" "${dependencies[@]}" "$out"/*) >"$out/.provenance"
	mv "$out/.provenance" "$out/provenance.intoto.json"
}

sign() {
	if [ -z "${RELEASE_KEY:-}" ]; then
		echo "release: not signed; set RELEASE_KEY to an SSH key to sign SHA256SUMS" >&2
		return
	fi
	ssh-keygen -q -Y sign -f "$RELEASE_KEY" -n nodelvm-release "$out/SHA256SUMS"
}

# plugin packs kubectl's plugin as krew wants it, and fills in krew's manifest.
plugin() {
	local scratch manifest
	scratch=$(mktemp -d)
	manifest=$(sed "s/VERSION/$version/" deploy/krew/nodelvm.yaml)
	cp LICENSE deploy/krew/kubectl_complete-nodelvm "$scratch"
	for target in linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64; do
		local archive=$out/kubectl-nodelvm-$target.tar.gz key=SHA256_${target//-/_} program=$scratch/kubectl-nodelvm
		[ $target != windows-amd64 ] || program+=.exe
		rm -f "$scratch"/kubectl-nodelvm{,.exe}
		GOOS=${target%-*} GOARCH=${target#*-} go build -trimpath -buildvcs=false -ldflags="-s -w -X main.version=$version" \
			-o "$program" ./cmd/kubectl-nodelvm
		tar -C "$scratch" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime=@0 --sort=name -cf - . | gzip -n >"$archive"
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

from=$(commit)
rm -rf "$out"
mkdir -p "$out"
changes
images
chart
cp deploy/nodelvm.yaml "$out/nodelvm-$version.yaml"
cp deploy/janitor.yaml "$out/nodelvm-janitor-$version.yaml"
plugin
[ -n "${RELEASE_CHECK:-}" ] || vulnerabilities
provenance "$from"
(cd "$out" && sha256sum -- * >.sums && mv .sums SHA256SUMS)
sign
echo "release $version is in $out:"
ls -l "$out"
