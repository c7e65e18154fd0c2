package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"slipway/scripts/internal/machine"
)

// ofChart is the environment variable that makes the process in the cluster run the test of the chart.
const ofChart = "SLIPWAY_CLUSTER_OF_CHART"

// ofImages is the environment variable for a folder with existing images of an earlier run, so that they aren't made
// again.
const ofImages = "SLIPWAY_CLUSTER_IMAGES"

// ofEarlier is the environment variable for the commit to upgrade from; by default it is the current one.
const ofEarlier = "SLIPWAY_CLUSTER_FROM"

// chartTag is the version of the images that the chart's test installs. It upgrades to the same images under another
// name, unless an earlier commit is set.
const (
	chartTag = "1.0.0"
	nextTag  = "1.0.1"
)

// chartImages are the images that the test needs, by their names on the command line of scripts/image.
var chartImages = map[string]string{
	"cluster": "slipway-cluster:" + chartTag, "build": "slipway-build:" + chartTag, "node24": "slipway-runtime:" + chartTag + "-node24",
}

// Folders with the source and the images of the earlier commit.
const (
	earlier       = "earlier"
	earlierImages = "earlier-images"
)

// buildChart builds what the chart's test needs. It caches the first layers of images, which take minutes.
func buildChart(dir, kept string) error {
	if err := machine.Install("mmdebstrap", "npm", "git", "postgresql"); err != nil {
		return err
	}
	images := func(source, out, version string) []string {
		return []string{
			"go", "-C", source, "run", "./scripts/image", "-out", out, "-keep", filepath.Join(kept, "layers"),
			"-of", strings.Join(slices.Sorted(maps.Keys(chartImages)), ","), "-version", version,
		}
	}
	var todo [][]string
	switch from := os.Getenv(ofEarlier); {
	case from != "":
		commit, err := exec.Command("git", "rev-parse", "--verify", from+"^{commit}").Output()
		if err != nil {
			return fmt.Errorf("there is no commit %s", from)
		}
		source := filepath.Join(dir, earlier)
		todo = append(todo,
			[]string{"git", "clone", "-q", ".", source}, []string{"git", "-C", source, "checkout", "-q", strings.TrimSpace(string(commit))},
			images(source, filepath.Join(dir, earlierImages), chartTag), images(".", dir, nextTag))
	case os.Getenv(ofImages) == "":
		todo = append(todo, images(".", dir, chartTag))
	}
	for _, argv := range append(todo, [][]string{
		{"go", "-C", "cluster/chart", "test", "-c", "-vet=off", "-tags=cluster", "-o", filepath.Join(dir, "chart.test"), "."},
		{"go", "-C", "cluster/chart", "build", "-o", filepath.Join(dir, "helm"), "helm.sh/helm/v4/cmd/helm"},
		{"go", "build", "-o", dir + "/", "./cmd/slipway", "./scripts/withpostgres"},
		{"go", "-C", "tools/versitygw", "tool", "-n", "versitygw"},
	}...) {
		if err := step(argv, "CGO_ENABLED=0"); err != nil {
			return err
		}
	}
	return nil
}

// chartTest turns the command of the cluster's tests into that of the chart's.
func (n *starting) chartTest(c *exec.Cmd) error {
	ctr := func(args ...string) error {
		out, err := exec.Command(filepath.Join(n.kept, "deb/usr/bin/ctr"), append([]string{
			"-a", filepath.Join(n.dir, "containerd.sock"), "-n", "k8s.io", "images",
		}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ctr images %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	load := func(folder, name string) error {
		return ctr("import", filepath.Join(folder, strings.ReplaceAll(name, ":", "_")+"_"+runtime.GOARCH+".oci.tar"))
	}
	fromEarlier := os.Getenv(ofEarlier) != ""
	for _, name := range chartImages {
		next := strings.Replace(name, chartTag, nextTag, 1)
		var err error
		if fromEarlier {
			err = errors.Join(load(filepath.Join(n.dir, earlierImages), name), load(n.dir, next))
		} else {
			err = cmp.Or(load(cmp.Or(os.Getenv(ofImages), n.dir), name), ctr("tag", "localhost/"+name, "localhost/"+next))
		}
		if err != nil {
			return err
		}
	}
	// Pods reach the API server by its Service's address. There is no kube-proxy here, so nftables redirects it.
	rules := "table ip services {\n"
	for _, hook := range []string{"prerouting", "output"} {
		rules += "chain " + hook + " { type nat hook " + hook + " priority -100; ip daddr 10.96.0.1 tcp dport 443 dnat to " + n.address + ":6443; }\n"
	}
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(rules + "}\n")
	if out, err := nft.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	source, err := os.Getwd()
	if err != nil {
		return err
	}
	values, err := os.ReadFile("cluster/chart/slipway/values.yaml")
	if err != nil {
		return err
	}
	node := regexp.MustCompile(`suffix: node24, node: ([0-9.]+)`).FindSubmatch(values)
	if node == nil {
		return fmt.Errorf("the chart has no image with Node.js 24")
	}
	chart := filepath.Join(source, "cluster/chart/slipway")
	first := chart
	if fromEarlier {
		first = filepath.Join(n.dir, earlier, "cluster/chart/slipway")
	}
	c.Path = filepath.Join(n.dir, "withpostgres")
	c.Args = []string{c.Path, filepath.Join(n.dir, "chart.test"), "-test.v", "-test.run", "^TestInstall$", "-test.timeout=20m"}
	c.Env = append(c.Env, "SLIPWAY_CLUSTER_BUILT="+n.dir, "SLIPWAY_CLUSTER_CHART="+first, "SLIPWAY_CLUSTER_NEXT_CHART="+chart,
		"SLIPWAY_CLUSTER_NODE24="+string(node[1]), "SLIPWAY_CLUSTER_TAG="+chartTag, "SLIPWAY_CLUSTER_NEXT="+nextTag)
	return nil
}
