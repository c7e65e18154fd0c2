package slipway

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const (
	nodesTests = "e2e/nodes/"
	relayTests = nodesTests + "relay_test.go:"
	kubeTests  = "cluster/kube/cluster_test.go:"
)

// fleetRows are what can fail where an installation has several nodes, or runs programs on Kubernetes, and the tests that show what
// happens then. Tests name them by their place: the first is row 1. Those without tests are in a tier that nothing runs yet, which
// notYet says; an engine that does not serve has no visitors.
var fleetRows = []struct{ what, tests, notYet string }{
	{what: "a backup, restart, terminal or command is asked of the wrong node", tests: nodesTests + "programs_test.go:TestStorageStaysOnItsNode " + nodesTests + "storage_test.go:TestStorageOfAllNodes"},
	{what: "a node is killed under load", tests: relayTests + "TestProgramMovesWhenItsNodeDies " + nodesTests + "kills_test.go:TestKillsOfNodes internal/edge/proxy/proxy_test.go:TestMachineGone"},
	{what: "a node is held for a minute and goes on", tests: relayTests + "TestProgramMovesWhenItsNodeDies internal/program/placement/placement_test.go:TestSharedStorageHasOneWriter"},
	{what: "two nodes wake a site in the same instant", tests: "internal/program/placement/placement_test.go:TestOneNodeTakesASite"},
	{what: "a node's clock is 50 seconds off", tests: "internal/program/placement/placement_test.go:TestClocksDiffer"},
	{what: "PostgreSQL is away for longer than a lease", tests: nodesTests + "faults_test.go:TestNotificationsAndDatabaseAway"},
	{what: "the machine of a pod dies", notYet: "needs a cluster that serves"},
	{what: "a machine of the cluster is drained", notYet: "needs a cluster that serves"},
	{what: "kubelet ends an awake pod", notYet: "needs a cluster that serves"},
	{what: "the API server is away", notYet: "needs a cluster that serves"},
	{what: "watches end, 410, 429, 409", notYet: "needs an informer; the engine polls its own pods"},
	{what: "a pod is deleted by hand", tests: kubeTests + "TestFailures"},
	{what: "no room on the cluster", tests: kubeTests + "TestFailures"},
	{what: "an image can't be pulled", tests: kubeTests + "TestFailures"},
	{what: "200 sites are asked for at once", notYet: "needs a cluster that serves"},
	{what: "a process dies between an object and its row", tests: kubeTests + "TestObjects"},
	{what: "a program dials what is closed to it", tests: kubeTests + "TestClosedNetwork"},
	{what: "a bomb of processes, memory or files", tests: kubeTests + "TestConformance"},
	{what: "the server of storage hangs", tests: nodesTests + "storage_test.go:TestStorageOfAllNodes internal/program/volume/volume_test.go:TestVolume"},
	{what: "an upload through one node is read at another", tests: relayTests + "TestAnyNodeAnswersForPHP"},
	{what: "a switch that a node is not notified of", tests: nodesTests + "faults_test.go:TestNotificationsAndDatabaseAway"},
	{what: "a WebSocket and an event stream over a restart", tests: relayTests + "TestAnyNodeAnswers"},
	{what: "a restore while the program is awake elsewhere", tests: nodesTests + "storage_test.go:TestStorageOfAllNodes"},
	{what: "a challenge of ACME reaches the other node", tests: "internal/edge/certs/certs_test.go:TestTwoNodes"},
	{what: "nodes are replaced one after the other under load", tests: relayTests + "TestDrain internal/platform/db/db_test.go:TestMigrationsOnlyAdd"},
	{what: "a node with another key, bucket or domain", tests: nodesTests + "programs_test.go:TestNodeThatDoesNotFit internal/platform/node/node_test.go:TestNodesMustFit"},
	{what: "a pack is cut, another one, or its address has expired", tests: kubeTests + "TestPacksAreSigned"},
	{what: "the chart is uninstalled", notYet: "needs the chart"},
}

// Each row has tests that exist, or says why it has none yet.
func TestFleetRows(t *testing.T) {
	t.Parallel()
	if len(fleetRows) != 28 {
		t.Errorf("%d rows, want 28", len(fleetRows))
	}
	for i, x := range fleetRows {
		if what := fmt.Sprintf("row %d, %s", i+1, x.what); x.notYet == "" {
			testsExist(t, what, x.tests)
		} else if x.tests != "" {
			t.Errorf("%s, has tests and says that it has none", what)
		}
	}
}

// fleetFigures are what several nodes are to reach, beside fleetRows: a row of docs/benchmarks.md, which begins with these words, tests, or
// why there is neither yet.
var fleetFigures = []struct{ what, row, tests, notYet string }{
	{what: "a wake from zero on Kubernetes", notYet: "needs a cluster that serves"},
	{what: "200 sites are asked for at once on Kubernetes", notYet: "needs a cluster that serves"},
	{what: "what another node adds to a request", row: "latency that another node adds, p50"},
	{what: "the rate through another node", row: "requests/s through another node"},
	{what: "100 switches under load of two edges", notYet: "one edge is measured: 100 switches under load"},
	{what: "a node is drained under load", tests: relayTests + "TestDrain"},
	{what: "the node of a program without storage is killed", tests: relayTests + "TestProgramMovesWhenItsNodeDies"},
	{what: "1,000 sites over three nodes of Kubernetes", notYet: "needs a cluster that serves"},
	{what: "one machine's memory", row: "memory, idle"},
}

// Each figure has its row or its tests, or says why it has neither yet.
func TestFleetFigures(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range fleetFigures {
		what := fmt.Sprintf("figure %d, %s", i+1, x.what)
		switch {
		case x.row != "" && !strings.Contains(string(text), "\n| "+x.row):
			t.Errorf("%s: docs/benchmarks.md has no row that begins with %q", what, x.row)
		case x.tests != "":
			testsExist(t, what, x.tests)
		case (x.row == "") == (x.notYet == ""):
			t.Errorf("%s: it has a row or says why it has none", what)
		}
	}
}
