# Slipway. `make` alone lists what there is. Every target shows the commands it runs.

export CGO_ENABLED = 0
# A clone or worktree in another folder takes what was compiled, and what vet and staticcheck found, from the cache.
export GOFLAGS := -trimpath $(filter-out -trimpath,$(GOFLAGS))
RELEASE := $(shell cat VERSION)
# A repository without tags names the release in VERSION and the commit.
VERSION := $(or $(shell git describe --tags --dirty 2>/dev/null),$(shell git describe --always --dirty 2>/dev/null | sed 's/^/v$(RELEASE)-g/'),v$(RELEASE))
# A chart's version has three numbers and no v.
CHART := $(VERSION:v%=%)

.PHONY: help run test test-all race test-nodes test-packages test-cluster test-chart test-terraform quick bench release image images chart pictures gallery build need bin/slipway clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: need bin/slipway ## start Slipway with a first site, until Ctrl-C
	@exec bin/slipway try

test: ## what must be green before a change lands
	go run ./scripts/check

test-all: ## the same with the stories that take long, the race detector and known vulnerabilities, as before a release
	go run ./scripts/check -all

race: ## the tests of internal/ with the race detector; needs gcc, and takes three quarters of an hour
	go run ./scripts/check -race

quick: ## what takes less than two minutes and starts no server
	go run ./scripts/check -quick

bench: ## the benchmarks; DOC=1 also updates docs/benchmarks.md, ARGS=… goes to bench
	@go run ./scripts/need nghttp2-client
	go run ./bench $(if $(DOC),-write docs/benchmarks.md) $(ARGS)

release: ## archives and Debian packages of this commit, in dist; ARGS="-arch amd64" for one
	go run ./scripts/release $(ARGS)

image: bin/slipway ## the container image of this commit, in dist
	@go run ./scripts/need mmdebstrap
	@mkdir -p dist
	go run ./scripts/image -program bin/slipway -version $(VERSION) -arch $(shell go env GOARCH) -out dist/slipway_$(VERSION)_$(shell go env GOARCH).oci.tar
	@install -m 0644 packaging/image/seccomp.json dist/slipway-seccomp.json

images: ## the images of a cluster for this commit, in dist/images, with lists of what is in them; ARGS="-of node24 -arch arm64" for one
	@go run ./scripts/need mmdebstrap npm
	go run ./scripts/image -of all -version $(CHART) -arch $(shell go env GOARCH) -out dist/images $(ARGS)

chart: ## the chart that a cluster is installed with, for images of this commit, in dist
	go run ./scripts/release -chart $(CHART)

test-nodes: ## the stories of programs and WordPress on two nodes, each request to either; takes half an hour, and root
	SLIPWAY_E2E_NODES=2 go test -count=1 -timeout 60m ./e2e/programs ./e2e/wordpress

test-packages: ## the Debian package and its unit on clean systems, upgrades from the last release, the image in Podman, Prometheus; takes an hour, and root
	@go run ./scripts/need gnupg mmdebstrap podman lintian minisign prometheus
	go test -tags packages -count=1 -timeout 120m -run '^(TestDebian|TestForeign|TestImage|TestClusterImages|TestLastRelease|TestMachines|TestPrometheus)$$' -v ./scripts/release ./scripts/image ./e2e
	go test -tags packages -count=1 -timeout 60m -run TestReal -v ./internal/build/root

test-terraform: ## the provider of terraform/, with Terraform or OpenTofu where one is there
	go -C terraform mod tidy -diff
	go -C terraform vet ./...
	go -C terraform test -count=1 -timeout 30m ./...

test-cluster: ## the engine on Kubernetes, and the chart with the images that it installs, on a real cluster; builds Kubernetes the first time, and needs root
	go run ./scripts/cluster -all

test-chart: ## the chart of cluster/chart, by Helm and the types of Kubernetes; compiles both the first time
	go -C cluster/chart mod tidy -diff
	go -C cluster/chart vet ./...
	go -C cluster/chart test -count=1 -v ./... # -v, so that one that found no API server says so

pictures: ## the pictures of README.md and of the examples, from new installations in Chromium and with demo data
	SLIPWAY_PICTURES=docs/images go test -tags=browser -count=1 -run '^(TestPictures|TestExamplePictures)$$' ./e2e/browser
	SLIPWAY_GALLERY=1 SLIPWAY_PICTURES=docs/images go test -tags=browser -count=1 -run '^TestBrowserGallery$$' ./internal/web/dashboard

gallery: ## pictures of all pages of the dashboard with demo data, both themes and three widths, in bin/shots/gallery
	SLIPWAY_GALLERY=1 go test -tags=browser -count=1 -run '^TestBrowserGallery$$' ./internal/web/dashboard

build: bin/slipway ## bin/slipway

need:
	@go run ./scripts/need bubblewrap git mariadb-server

bin/slipway:
	go generate ./internal/platform/sandbox
	go build -trimpath -tags slipway_init -ldflags '-s -w -X main.version=$(VERSION)' -o bin/slipway ./cmd/slipway

clean: ## remove bin and dist (never slipway-data)
	rm -rf bin dist
