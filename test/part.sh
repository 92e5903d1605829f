#!/usr/bin/env bash
# Runs one part of the test suite, the whole of it even if a test fails; test/cmd/suite runs several at the same time.
# usage: test/part.sh lint|unit|arm64|lab|lvm|power|apiserver|e2e|scenarios|datapath|long|prose|helm
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
source versions.env

cache=${NODELVM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nodelvm}
tools=$cache/tools
results=$root/dist/test # for each run of go test a file of its events, PART-NAME.json
modules=(. deploy/image deploy/render deploy/alerts test)

# need_space fails early with a sentence: a compiler or etcd on a full disk fails late, and with a message about something else.
need_space() { # GiB, folder
	mkdir -p "$2"
	local free
	free=$(df --output=avail --block-size=1G "$2" | tail -n 1)
	[ "$free" -ge "$1" ] || { echo "the file system of $2 has $free GiB free; the tests need $1 GiB: free some space, or name other folders with NODELVM_CACHE and GOCACHE"; return 1; }
}

# Missing tools are installed once: Debian's packages by apt, Go tools compiled into the cache. Parts that run at the same time
# do it one after the other; the lab takes the same lock.
lock_installation() { exec 9>"$cache/install.lock" && flock 9; }

need_packages() (
	lock_installation || exit
	local missing=()
	for package in "$@"; do
		dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
	done
	[ ${#missing[@]} = 0 ] && exit
	echo "installing ${missing[*]}"
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
)

need_tool() ( # name, package, version, cgo
	lock_installation || exit
	path=$tools/$1-$3
	if [ ! -x "$path" ]; then
		echo "compiling $1 $3 (once)"
		GOBIN=$tools/build CGO_ENABLED=${4:-0} go install "$2@$3" && mv "$tools/build/$1" "$path"
	fi
)

# Vale's parsers are C code.
need_vale() {
	need_packages gcc libc6-dev && need_tool vale github.com/vale-cli/vale/v3/cmd/vale "$VALE_VERSION" 1
}

need_npm() { command -v npm >/dev/null || need_packages npm; }

# need_mermaid keeps the one file of the npm package that a browser needs.
need_mermaid() {
	local path=$tools/mermaid-$MERMAID_VERSION.js folder
	[ -s "$path" ] && return
	need_npm || return
	folder=$(mktemp -d)
	npm pack --silent --pack-destination "$folder" "mermaid@$MERMAID_VERSION" >/dev/null && check_integrity "$folder"/mermaid-*.tgz "$MERMAID_SHA512" &&
		tar xzf "$folder"/mermaid-*.tgz -C "$folder" package/dist/mermaid.min.js && mkdir -p "$tools" && mv "$folder/package/dist/mermaid.min.js" "$path"
	local failed=$?
	rm -rf "$folder"
	return $failed
}

check_integrity() { # file, SHA-512 in hexadecimal
	echo "$2  $1" | sha512sum --check --status || { echo "$1 has another checksum than versions.env says"; return 1; }
}

go_test() { # module folder, name, format, flags...
	local folder=$1 name=$2 format=$3 gotestsum
	shift 3
	gotestsum=$(cd test && GOARCH="" CGO_ENABLED=0 go tool -n gotestsum) || return # its version is in test/go.mod
	(cd "$folder" && "$gotestsum" --format "$format" --jsonfile "$results/$part-$name.json" -- "$@")
}

lint() {
	need_tool golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint "$GOLANGCI_LINT_VERSION" || return
	local bad=0
	for folder in "${modules[@]}"; do
		(cd "$folder" && "$tools/golangci-lint-$GOLANGCI_LINT_VERSION" run --config "$root/.golangci.yml" --build-tags reallvm,realfs,innode,e2e ./...) || bad=1
	done
	pages || bad=1
	return $bad
}

# pages holds prose to the vocabulary, renders the diagrams, and opens the dashboard.
pages() {
	need_vale && need_mermaid && need_npm && need_packages chromium-headless-shell || return
	local bad=0
	run_prose || bad=1
	NODELVM_TEST_VALE=$tools/vale-$VALE_VERSION NODELVM_TEST_MERMAID=$tools/mermaid-$MERMAID_VERSION.js \
		go_test test pages pkgname -tags e2e -count=1 ./prose ./diagrams ./dashboard || bad=1
	return $bad
}

# prose shows what `lint` still accepts: counts by rule and folder, or with PROSE=PATH each place below that path.
prose() {
	need_vale || return
	if [ -n "${PROSE:-}" ]; then run_prose --all "$PROSE"; else run_prose --count; fi
}

run_prose() { (cd test && CGO_ENABLED=0 go run -trimpath ./cmd/prose --vale "$tools/vale-$VALE_VERSION" "$@"); }

unit() {
	need_packages gcc libc6-dev || return
	local bad=0
	for folder in "${modules[@]}"; do
		local race=-race fresh=
		[ "$folder" = deploy/render ] && race= # one goroutine, and half of the API server to compile
		# These read the chart and the docs, and a change outside of its module does not make Go run a test again.
		[[ $folder = deploy/render || $folder = deploy/alerts ]] && fresh=-count=1
		local name=${folder/#./driver}
		go_test "$folder" "${name//\//-}" pkgname $race $fresh ./... || bad=1
	done
	return $bad
}

# arm64 runs the unit tests of the driver and the plugin on an emulated processor, then the engine's suite and the image's tools in a node.
arm64() {
	need_packages qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross || return
	local bad=0
	GOARCH=arm64 CGO_ENABLED=0 go_test . driver pkgname -exec qemu-aarch64-static ./... || bad=1
	go_test test arm64 standard-verbose -tags e2e -count=1 -timeout 120m -run '^TestLVMOnArm64$' ./e2e || bad=1
	return $bad
}

lab() {
	need_packages lvm2 || return
	local bad=0
	go_test . readers testname -tags reallvm -count=1 -run '^TestReal' ./lvm/host ./lvm/internal/ondisk || bad=1 # metadata alone: loop devices of this machine do
	go_test test lab testname -tags e2e -count=1 -timeout 45m ./lab || bad=1
	return $bad
}

lvm() { in_nodes '^TestLVM$' 120m; }

power() { in_nodes '^TestPowerCut' 120m; }

in_nodes() { go_test test nodes standard-verbose -tags e2e -count=1 -timeout "$2" -run "$1" ./e2e; } # tests, time

# long is for a night: what `lvm` samples, whole, and each fuzzer for a minute.
long() {
	need_packages lvm2 || return
	local bad=0
	fuzz "${NODELVM_TEST_FUZZTIME:-60s}" || bad=1
	arm64 || bad=1
	export NODELVM_TEST_CRASH=all NODELVM_TEST_ENCRYPTED=all NODELVM_TEST_CASES=1000 NODELVM_TEST_CUTS=200 NODELVM_TEST_KILLS=100 NODELVM_TEST_PATIENCE=12h
	in_nodes '^TestLVM$|^TestPowerCut' 24h || bad=1
	go_test test encryption standard-verbose -tags e2e -count=1 -timeout 2h -run '^TestEncryption$' ./e2e || bad=1
	go_test test cluster standard-verbose -tags e2e -count=1 -timeout 12h -run '^TestPlacement$|^TestNodeReboot$|^TestPodsWithSeveralClaims$|^TestPlantedFaults$|^TestInstanceStore$|^TestUnusualNodes$|^TestBurst$|^TestPairs$|^TestClusterPowerCuts$' ./e2e || bad=1
	go_test test karpenter standard-verbose -tags e2e -count=1 -timeout 2h -run '^TestKarpenter$' ./apiserver || bad=1
	helm && go_test test docs standard-verbose -tags e2e -count=1 -timeout 4h -run '^TestDocsLong$' ./e2e || bad=1
	return $bad
}

fuzz() { # time for each
	local bad=0 count=0
	while IFS=: read -r file name; do
		printf '%s %s\n' "$(dirname "$file")" "$name"
		# An input that reaches new code is made smaller for up to a minute by default, during which nothing else is tried.
		go test "$(dirname "$file")" -run '^$' -fuzz "^$name\$" -fuzztime "$1" -fuzzminimizetime 20x || bad=1
		count=$((count + 1))
	done < <(grep -roE --include='*_test.go' --exclude-dir=test --exclude-dir=deploy '^func Fuzz[A-Za-z0-9_]+' . | sed 's/:func /:/')
	printf '%d fuzzers\n' "$count"
	[ "$count" -gt 0 ] && [ $bad = 0 ]
}

# helm compiles what TestChartIsAccepted and TestHelm run.
helm() { need_tool helm helm.sh/helm/v3/cmd/helm "$HELM_VERSION"; }

# apiserver leaves TestKarpenter, which compiles Karpenter, to `long`.
apiserver() { helm && go_test test apiserver testname -tags e2e -count=1 -timeout 120m -skip '^TestKarpenter$' ./apiserver; }

e2e() {
	helm && go_test test scenarios standard-verbose -tags e2e -count=1 -timeout 180m \
		-run '^TestDemo$|^TestDocs$|^TestHelm$|^TestVolumeLifecycle$|^TestTenantAttacks$|^TestNodeLoss$|^TestConformance$' ./e2e
}

# scenarios is the part of e2e that make matrix runs on each version of Kubernetes.
scenarios() {
	helm && NODELVM_LAB=${NODELVM_LAB:-/tmp/nodelvm-matrix} go_test test scenarios standard-verbose -tags e2e -count=1 -timeout 120m -run '^TestDemo$|^TestVolumeLifecycle$' ./e2e
}

# datapath is the part of make bench that measures I/O in pods. It needs an idle machine.
datapath() { go_test test datapath standard-verbose -tags e2e -count=1 -timeout 180m -run '^TestDataPath$' ./e2e; }

part=${1:-}
case $part in
lint | unit | arm64 | lab | lvm | power | apiserver | e2e | scenarios | datapath | long | prose | helm) ;;
*)
	sed -n 's/^# usage: /usage: /p' "$0"
	exit 2
	;;
esac
mkdir -p "$cache" "$results" && rm -f "$results/$part"-*.json
need_space 10 "$cache" && need_space 10 "$(go env GOCACHE)" && "$part"
