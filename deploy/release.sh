#!/usr/bin/env bash
# Writes everything that a release consists of to dist/release: images for both architectures and their index, with lists of what is in
# them, the plain manifests, the chart, the kubectl plugin, the changes, the provenance, and SHA256SUMS.
# While it works, the folder's name ends in .unfinished.
# Two builds of one commit on the same Debian packages give the same bytes (deploy/release-check.sh).
# usage: deploy/release.sh    (from anywhere; "make release")
#   RELEASE_KEY=FILE         signs SHA256SUMS with this SSH key (ssh-keygen -Y sign)
#   RELEASE_UNSIGNED=1       instead of a key: leaves SHA256SUMS without a signature
#   RELEASE_OUT=DIR          writes there, and removes an earlier release from there
#   RELEASE_BASE_AMD64=FILE, RELEASE_BASE_ARM64=FILE   the Debian layer of an earlier release (tar, tar.gz), to build it again
#   RELEASE_CHECK=1          for a comparison, unsigned: allows changes that are not committed and a commit without the version's tag, and does
#                            not look for known vulnerabilities
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
root=$PWD
source versions.env
version=$(sed -n 's/^appVersion: //p' deploy/chart/nodelvm/Chart.yaml)
chart_version=$(sed -n 's/^version: //p' deploy/chart/nodelvm/Chart.yaml)
finished=$(realpath -m "${RELEASE_OUT:-$root/dist/release}")
out=$finished.unfinished
repository=ghcr.io/nodelvm/nodelvm
cache=${NODELVM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nodelvm}
# Other settings, and another patch version of Go, give other bytes.
unset GOFLAGS GOEXPERIMENT GOAMD64 GOARM64
export CGO_ENABLED=0 GOTOOLCHAIN=go$GO_VERSION
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

stop() {
	echo "release: $*" >&2
	exit 1
}

# settings refuses what would make a release that nobody can check.
settings() {
	if [ -n "${RELEASE_CHECK:-}" ]; then
		[ -z "${RELEASE_KEY:-}" ] || stop "RELEASE_CHECK=1 skips checks of a release, so its result cannot be signed: unset RELEASE_KEY"
	elif [ -n "${RELEASE_KEY:-}" ]; then
		ssh-keygen -q -Y sign -f "$RELEASE_KEY" -n nodelvm-release <versions.env >"$scratch/signature" || stop "ssh-keygen cannot sign with RELEASE_KEY=$RELEASE_KEY"
	else
		[ -n "${RELEASE_UNSIGNED:-}" ] || stop "set RELEASE_KEY to the SSH key that signs SHA256SUMS, or RELEASE_UNSIGNED=1 for a release without a signature"
	fi
	[ ! -e "$finished" ] || [ -e "$finished/SHA256SUMS" ] || [ -z "$(ls -A "$finished")" ] || stop "$finished has files that are not of a release: remove them, or name another folder with RELEASE_OUT"
}

tools() {
	local tool missing=()
	for tool in go git jq mmdebstrap gzip; do
		command -v $tool >/dev/null || missing+=($tool)
	done
	[ ${#missing[@]} = 0 ] || stop "install ${missing[*]}: Debian has packages of these names"
}

images() {
	local arch
	for arch in amd64 arm64; do
		# With a cache of its own, the Debian layer has today's packages.
		local base=RELEASE_BASE_${arch^^}
		(cd deploy/image && NODELVM_CACHE=$scratch/cache go run -trimpath ./cmd/image --arch $arch --base "${!base:-}" --out "$out/nodelvm-$version-$arch.tar")
		(cd deploy/image && go run -trimpath ./cmd/sbom "$out/nodelvm-$version-$arch.tar") >"$out/nodelvm-$version-$arch.cdx.json"
	done
	local index
	index=$(cd deploy/image && go run -trimpath ./cmd/oci index "$version" "$out/nodelvm-$version.oci.tar" "$out/nodelvm-$version-"{amd64,arm64}.tar)
	echo "$repository:$version@$index" >"$out/nodelvm-$version.digest"
}

chart() {
	(cd deploy/render && go run -trimpath . --package "$out")
	(cd deploy/image && go run -trimpath ./cmd/oci chart "$chart_version" "$out/nodelvm-chart-$chart_version.oci.tar" "$out/nodelvm-$chart_version.tgz")
}

# changes takes the version's part of CHANGELOG.md.
changes() {
	awk -v head="## $version" 'index($0, "## ") == 1 { on = index($0, head " ") == 1 || $0 == head; next } on' CHANGELOG.md >"$out/CHANGES.md"
	grep -q . "$out/CHANGES.md" || stop "CHANGELOG.md has no section \"## $version\": write one"
}

# commit names what is built. A release is the commit of the version's tag, without further changes.
commit() {
	local head changes tags
	head=$(git rev-parse HEAD)
	changes=$(git status --porcelain)
	tags=$(git tag --points-at HEAD)
	if [ -z "${RELEASE_CHECK:-}" ]; then
		[ -z "$changes" ] || stop "the checkout has changes that are not committed: commit them first"
		grep -qxF "$version" <<<"$tags" || stop "commit $head does not have the tag $version, which Chart.yaml names as appVersion: check out the tag, or create it"
	elif [ -n "$changes" ]; then
		head=$head-dirty
	fi
	echo "$head"
}

# manifests copies the plain manifests, which must be what the chart renders.
manifests() {
	local file
	mkdir "$scratch/deploy"
	cp -r deploy/chart "$scratch/deploy"
	(cd deploy/render && go run -trimpath . --deploy "$scratch/deploy" >/dev/null)
	for file in nodelvm.yaml controller.yaml; do
		cmp --silent "deploy/$file" "$scratch/deploy/$file" || stop "deploy/$file is not what the chart renders: run make manifest, and commit the result"
	done
	cp deploy/nodelvm.yaml "$out/nodelvm-$version.yaml"
	cp deploy/controller.yaml "$out/nodelvm-controller-$version.yaml"
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
		echo "release: SHA256SUMS has no signature" >&2
		return
	fi
	ssh-keygen -q -Y sign -f "$RELEASE_KEY" -n nodelvm-release "$out/SHA256SUMS"
	ssh-keygen -q -Y check-novalidate -n nodelvm-release -s "$out/SHA256SUMS.sig" <"$out/SHA256SUMS" >/dev/null || stop "the signature of SHA256SUMS is wrong"
}

# plugin packs kubectl's plugin as krew wants it, and fills in krew's manifest.
plugin() {
	local folder=$scratch/plugin manifest target
	mkdir "$folder"
	manifest=$(sed "/^#/d; s/VERSION/$version/" deploy/krew/nodelvm.yaml)
	cp LICENSE deploy/krew/kubectl_complete-nodelvm "$folder"
	for target in linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64; do
		local archive=$out/kubectl-nodelvm-$target.tar.gz key=SHA256_${target//-/_} program=$folder/kubectl-nodelvm
		[ $target != windows-amd64 ] || program+=.exe
		rm -f "$folder"/kubectl-nodelvm{,.exe}
		GOOS=${target%-*} GOARCH=${target#*-} go build -trimpath -buildvcs=false -ldflags="-s -w -X main.version=$version" \
			-o "$program" ./cmd/kubectl-nodelvm
		tar -C "$folder" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime=@0 --sort=name -cf - . | gzip -n >"$archive"
		manifest=${manifest//${key^^}/$(sha256sum "$archive" | cut -d' ' -f1)}
	done
	[[ $manifest != *SHA256_* ]] || stop "deploy/krew/nodelvm.yaml names an archive that is not made"
	echo "$manifest" >"$out/krew-nodelvm.yaml"
}

# GOVULNDB is the URL of a copy of the database of vulnerabilities (https://go.dev/security/vuln/database); govulncheck does not read it itself.
vulnerabilities() {
	local tool=$cache/tools/govulncheck-$GOVULNCHECK_VERSION database=${GOVULNDB:-https://vuln.go.dev} code=0
	if [ ! -x "$tool" ]; then
		GOBIN=$cache/tools/build go install -trimpath "golang.org/x/vuln/cmd/govulncheck@$GOVULNCHECK_VERSION"
		mv "$cache/tools/build/govulncheck" "$tool"
	fi
	"$tool" -db "$database" ./cmd/... || code=$?
	case $code in
	0) ;;
	3) stop "govulncheck found vulnerabilities that the driver reaches (above): update what has them" ;;
	*) stop "govulncheck could not look (exit code $code): it reads its database from $database; let it reach that, or set GOVULNDB to the URL of a copy" ;;
	esac
}

settings
from=$(commit)
tools
rm -rf "$out"
mkdir -p "$out"
changes
[ -n "${RELEASE_CHECK:-}" ] || vulnerabilities
manifests
images
chart
plugin
provenance "$from"
(cd "$out" && sha256sum -- * >.sums && mv .sums SHA256SUMS)
sign
rm -rf "$finished"
mv "$out" "$finished"
echo "release $version is in $finished:"
ls -l "$finished"
