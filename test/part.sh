#!/usr/bin/env bash
# Runs one part of the test suite, the whole of it even if a test fails; test/cmd/suite runs several at the same time.
# docs/development/testing.md says what each part of make test, make test-full and make test-long runs.
# usage: test/part.sh vet|unit|race|deploy|pages|api|nodes|cluster
# usage: test/part.sh full-unit|full-pages|apiserver|lab|lvm|power|e2e
# usage: test/part.sh hardware|arm64|scenarios|datapath|long|prose|helm|mutants
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
source versions.env

cache=${NODELVM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nodelvm}
tools=$cache/tools
results=$root/dist/test # for each run of go test a file of its events, PART-NAME.json
modules=(. deploy/image deploy/render deploy/alerts test test/vet)

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
	dpkg -s "$@" >/dev/null 2>&1 && exit
	lock_installation || exit
	echo "installing what is missing of $*"
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
)

need_tool() ( # name, package, version, cgo
	path=$tools/$1-$3
	[ -x "$path" ] && exit
	lock_installation || exit
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

# passed_before says whether a part has passed with the same content of these paths, on this machine.
passed_before() { # path...
	stamp=$cache/passed/$part-$(git ls-files -z --cached --others --exclude-standard -- versions.env test/part.sh "$@" | xargs -0 sha256sum 2>&1 | sha256sum | cut -c1-32)
	[ -e "$stamp" ] && echo "this part has passed with the same content of $*"
}

# record_pass lets the next passed_before of the same content succeed.
record_pass() { mkdir -p "$(dirname "$stamp")" && touch "$stamp"; }

# go_test runs the tests of a module. Beside the file of events it leaves the command that repeats one test, in which RUN and PACKAGE stand for it.
go_test() { # module folder, name, format, flags and packages...
	local folder=$1 name=$2 format=$3 gotestsum flags=()
	shift 3
	gotestsum=$(cd test && GOARCH="" CGO_ENABLED=0 GOFLAGS=-trimpath go tool -n gotestsum) || return # its version is in test/go.mod
	for ((i = 1; i <= $#; i++)); do
		case ${!i} in
		-run | -skip) i=$((i + 1)) ;;
		-*) flags+=("${!i}"); [[ ${!i} = -tags || ${!i} = -timeout ]] && i=$((i + 1)) && flags+=("${!i}") ;;
		esac
	done
	echo "(cd $folder && CGO_ENABLED=${CGO_ENABLED:-1} go test ${flags[*]} -run RUN PACKAGE)" >"$results/$part-$name.repeat"
	(cd "$folder" && "$gotestsum" --format "$format" --jsonfile "$results/$part-$name.json" -- -trimpath "$@")
}

# The flags of tests that run without the race detector: what the lab and the image compile too, Go's cache then has.
export_plain() { export CGO_ENABLED=0; }

# vet runs the analyzers of go vet and the linters of test/vet.
vet() {
	export_plain
	local bad=0 files
	files=$(git ls-files '*.go' | xargs gofmt -l) && [ -z "$files" ] || { echo "gofmt would change $files"; bad=1; }
	(cd test/vet && go build -trimpath -o "$tools/build/vet" .) || return
	for folder in "${modules[@]}"; do
		(cd "$folder" && go vet -trimpath -vettool="$tools/build/vet" -tags reallvm,realfs,innode,e2e ./...) || bad=1
	done
	[ $bad = 0 ] && echo "1 passed, 0 failed"
	return $bad
}

# pages holds prose to the vocabulary. It renders the diagrams and opens the dashboard if these have changed.
pages() {
	need_vale && run_prose || return
	passed_before '*.md' docs .vale.ini go.mod test/prose test/diagrams test/dashboard test/go.mod api cmd/kubectl-nodelvm lvm report || { rendered && record_pass; }
}

full-pages() { need_vale && run_prose && rendered; }

rendered() {
	need_mermaid && need_npm && need_packages chromium-headless-shell || return
	NODELVM_TEST_VALE=$tools/vale-$VALE_VERSION NODELVM_TEST_MERMAID=$tools/mermaid-$MERMAID_VERSION.js CGO_ENABLED=0 \
		go_test test pages pkgname -tags e2e -count=1 ./prose ./diagrams ./dashboard
}

# prose shows what `pages` still accepts: counts by rule and folder, or with PROSE=PATH each place below that path.
prose() {
	need_vale || return
	if [ -n "${PROSE:-}" ]; then run_prose --all "$PROSE"; else run_prose --count; fi
}

run_prose() { (cd test && CGO_ENABLED=0 go run -trimpath ./cmd/prose --vale "$tools/vale-$VALE_VERSION" "$@"); }

unit() {
	export_plain
	local bad=0
	for folder in . deploy/image test test/vet; do
		go_test "$folder" "$(name_of "$folder")" pkgname -count=1 ./... || bad=1
	done
	go_test . onecall testname -tags onecall -count=1 -run '^TestFilesOfOneCall$' ./cmd/nodelvm || bad=1
	return $bad
}

# race runs the tests of the packages that start goroutines, and of those that hold locks for them. What it skips takes six minutes with the
# race detector, and runs its agents one step after the other, or measures the time of one goroutine; full-unit runs it with the detector, too.
race() {
	need_packages gcc libc6-dev || return
	local packages
	packages=$(concurrent_packages) && [ -n "$packages" ] || return
	# shellcheck disable=SC2086 # one word for each package
	go_test . driver pkgname -race -count=1 -skip '^TestKilledAtEachRequest$|^TestOutcomes|^TestALargeCluster$' $packages
}

concurrent_packages() {
	grep -rlE --include='*.go' --exclude='*_test.go' --exclude-dir=test --exclude-dir=deploy --exclude-dir=lvmtest '^[[:space:]]*(defer )?go [a-zA-Z]|\.Go\(' . | xargs -n 1 dirname | sort -u
}

# deploy proves the chart and its policies, and each alert in Prometheus' engine, if they have changed.
deploy() {
	export_plain
	passed_before deploy docs || { deploy_modules && record_pass; }
}

# Without Go's cache of results: these tests read the chart and the docs, and a change outside of its module does not make Go run a test again.
deploy_modules() {
	local bad=0
	go_test deploy/render render pkgname -count=1 ./... || bad=1
	go_test deploy/alerts alerts pkgname -count=1 ./... || bad=1
	return $bad
}

name_of() { local name=${1/#./driver}; echo "${name//\//-}"; } # of a module's folder

# full-unit runs the unit tests of all modules with the race detector, except those of one goroutine that need the API server's code.
full-unit() {
	need_packages gcc libc6-dev || return
	local bad=0
	for folder in . deploy/image test test/vet; do
		go_test "$folder" "$(name_of "$folder")" pkgname -race -count=1 ./... || bad=1
	done
	CGO_ENABLED=0 deploy_modules || bad=1
	return $bad
}

# arm64 runs the unit tests of the driver and the plugin in a user-mode emulator, then the image's tools and tests on real LVM in an arm64 node.
arm64() {
	need_packages qemu-user-static || return
	local bad=0
	GOARCH=arm64 CGO_ENABLED=0 go_test . driver pkgname -exec qemu-aarch64-static ./... || bad=1
	NODELVM_TEST_PART=$part-arm64 go_test test arm64 standard-verbose -tags e2e -count=1 -timeout 120m -run '^TestLVMOnArm64$' ./e2e || bad=1
	return $bad
}

lab() {
	export_plain
	local bad=0
	readers || bad=1
	go_test test lab testname -tags e2e -count=1 -timeout 45m -skip '^TestHardwareNode' ./lab || bad=1
	go_test test services standard-verbose -tags e2e -count=1 -timeout 45m -run '^TestServices$' ./e2e || bad=1
	return $bad
}

# nodes is the sample of lvm, power and lab that the gate runs.
nodes() {
	local bad=0
	readers || bad=1
	in_nodes '^TestNodes$' 60m || bad=1
	return $bad
}

# readers compares the driver's reading of metadata with LVM's report. Metadata alone: loop devices of this machine do.
readers() { need_packages lvm2 && CGO_ENABLED=0 go_test . readers testname -tags reallvm -count=1 -run '^TestReal' ./lvm/host; }

# lvm runs the conformance suite on the oldest kernel of the matrix too: kernels differ in what they count and refuse.
lvm() {
	local bad=0
	in_nodes '^TestLVM$' 120m || bad=1
	[ -n "${NODELVM_KERNEL_AND_NODE_SUITE:-}" ] ||
		NODELVM_KERNEL_AND_NODE_SUITE=${NODE_MATRIX%%,*} NODELVM_TEST_JOB=conformance in_nodes '^TestLVM$' 60m -oldest || bad=1
	return $bad
}

power() { in_nodes '^TestPowerCut' 120m; }

# hardware runs tests in a node that qemu emulates, and then what that leaves on this machine.
hardware() {
	export_plain
	local bad=0
	NODELVM_TEST_PART=$part go_test test hardware standard-verbose -tags e2e -count=1 -timeout 180m -run '^TestHardware$' ./e2e || bad=1
	go_test test hardwarekubelet standard-verbose -tags e2e -count=1 -timeout 90m -run '^TestHardwareKubelet$' ./e2e || bad=1
	go_test test hardwarelab testname -tags e2e -count=1 -timeout 60m -run '^TestHardwareNode' ./lab || bad=1
	return $bad
}

# in_nodes runs tests; a suffix keeps their results apart from those of another run.
in_nodes() { CGO_ENABLED=0 NODELVM_TEST_PART=$part${3:-} go_test test "nodes${3:-}" standard-verbose -tags e2e -count=1 -timeout "$2" -run "$1" ./e2e; } # tests, time, suffix

# long is for a night: what `lvm` samples, whole, and each fuzzer for a minute.
long() {
	need_packages lvm2 || return
	local bad=0
	fuzz "${NODELVM_TEST_FUZZTIME:-60s}" || bad=1
	arm64 || bad=1
	export NODELVM_TEST_CRASH=all NODELVM_TEST_ENCRYPTED=all NODELVM_TEST_CASES=1000 NODELVM_TEST_CUTS=200 NODELVM_TEST_KILLS=100 NODELVM_TEST_GROUP_SNAPSHOTS=200 NODELVM_TEST_DATABASE_GROUPS=20 NODELVM_TEST_PATIENCE=12h
	in_nodes '^TestLVM$|^TestPowerCut' 24h || bad=1
	hardware || bad=1
	go_test test encryption standard-verbose -tags e2e -count=1 -timeout 2h -run '^TestEncryption$' ./e2e || bad=1
	go_test test cluster standard-verbose -tags e2e -count=1 -timeout 12h -run '^TestPlacement$|^TestNodeReboot$|^TestPlantedFaults$|^TestInstanceStore$|^TestUnusualNodes$|^TestNeighbours$|^TestBurst$|^TestPairs$|^TestClusterPowerCuts$|^TestMovePowerCuts$' ./e2e || bad=1
	go_test test health standard-verbose -tags e2e -count=1 -timeout 2h -run '^TestVolumeHealth$' ./e2e || bad=1
	NODELVM_TEST_HOSTILE=${NODELVM_TEST_HOSTILE:-1h} go_test test hostile standard-verbose -tags e2e -count=1 -timeout 4h -run '^TestHostileClient$' ./e2e || bad=1
	go_test test karpenter standard-verbose -tags e2e -count=1 -timeout 2h -run '^TestKarpenter$' ./apiserver || bad=1
	helm && go_test test docs standard-verbose -tags e2e -count=1 -timeout 4h -run '^TestIOLimits$|^TestUserNamespaces$|^TestGroupSnapshots$|^TestMoves$|^TestDrainNode$|^TestRestoreElsewhere$|^TestVelero$|^TestDocsLong$' ./e2e || bad=1
	return $bad
}

# mutants proves that the gate finds faults.
mutants() { (cd test && CGO_ENABLED=0 go run -trimpath ./cmd/mutants); }

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

# api is the sample of apiserver that the gate runs.
api() {
	in_apiserver -run '^TestPolicies$|^TestVolumeExpands$|^TestCloneIsPlaced|^TestControllerReleases|^TestControllerKeeps|^TestPluginFindsPlantedFaults$|^TestSidecarsAreAdmitted$|^TestSelectingClaims|^TestOrphansAreReported'
}

# apiserver leaves TestKarpenter, which compiles Karpenter, to `long`.
apiserver() { helm && in_apiserver -skip '^TestKarpenter$'; }

in_apiserver() { CGO_ENABLED=0 go_test test apiserver testname -tags e2e -count=1 -timeout 120m "$@" ./apiserver; }

# cluster raises one cluster for the demo, a volume's life and the attacks of a tenant.
cluster() { in_cluster '^TestDemo$|^TestVolumeLifecycle$|^TestTenantAttacksSample$' 60m; }

e2e() { helm && in_cluster '^TestDemo$|^TestDocs$|^TestHelm$|^TestVolumeLifecycle$|^TestTenantAttacks$|^TestNodeLoss$|^TestOperator$|^TestGroupSnapshots$|^TestConformance$' 180m; }

in_cluster() { CGO_ENABLED=0 go_test test scenarios standard-verbose -tags e2e -count=1 -timeout "$2" -run "$1" ./e2e; } # tests, time

# scenarios is the part of e2e that make matrix runs on each version of Kubernetes.
scenarios() { helm && in_cluster '^TestDemo$|^TestVolumeLifecycle$' 120m; }

# datapath is the part of make bench that measures I/O in pods, and the copies of moves. It needs an idle machine.
datapath() { helm && go_test test datapath standard-verbose -tags e2e -count=1 -timeout 180m -run '^TestDataPath$|^TestMoveRate$' ./e2e; }

part=${1:-}
{ # bash reads all of this before it runs a part, and so does not read a file that changes meanwhile
case $part in
vet | unit | race | deploy | pages | api | nodes | cluster) ;;
full-unit | full-pages | apiserver | lab | lvm | power | e2e) ;;
hardware | arm64 | scenarios | datapath | long | prose | helm | mutants) ;;
*)
	sed -n 's/^# usage: /usage: /p' "$0"
	exit 2
	;;
esac
mkdir -p "$cache" "$results" "$tools/build" && rm -f "$results/$part"-*.json "$results/$part"-*.repeat
need_space 10 "$cache" && need_space 10 "$(go env GOCACHE)" && "$part"
exit
}
