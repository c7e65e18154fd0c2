package slipway

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const (
	nodesTests  = "e2e/nodes/"
	relayTests  = nodesTests + "relay_test.go:"
	kubeTests   = "cluster/kube/cluster_test.go:"
	serverTests = "cluster/kube/api_test.go:"
	leaveTests  = "cluster/kube/leave_api_test.go:"
	twoMachines = "cluster/kube/nodes_cluster_test.go:TestNodes"
	installed   = "cluster/chart/cluster_test.go:TestInstall"
)

// fleetRows are what can fail where an installation has several nodes, or runs programs on Kubernetes, and the tests that show what
// happens then, or the row of docs/benchmarks.md that shows it. Tests name them by their place: the first is row 1.
var fleetRows = []struct{ what, tests, row string }{
	{what: "a backup, restart, terminal or command is asked of the wrong node", tests: nodesTests + "programs_test.go:TestStorageStaysOnItsNode " + nodesTests + "storage_test.go:TestStorageOfAllNodes"},
	{what: "a node is killed under load", tests: relayTests + "TestProgramMovesWhenItsNodeDies " + nodesTests + "kills_test.go:TestKillsOfNodes internal/edge/proxy/proxy_test.go:TestMachineGone"},
	{what: "a node is held for a minute and goes on", tests: relayTests + "TestProgramMovesWhenItsNodeDies internal/program/placement/placement_test.go:TestSharedStorageHasOneWriter"},
	{what: "two nodes wake a site in the same instant", tests: "internal/program/placement/placement_test.go:TestOneNodeTakesASite " + serverTests + "TestAPIServerTwoStarts"},
	{what: "a node's clock is 50 seconds off", tests: "internal/program/placement/placement_test.go:TestClocksDiffer"},
	{what: "PostgreSQL is away for a minute", tests: nodesTests + "faults_test.go:TestNotificationsAndDatabaseAway"},
	{what: "the machine of a pod dies", tests: twoMachines + " " + leaveTests + "TestAPIServerLostNode " + leaveTests + "TestAPIServerSilentNode " + serverTests + "TestAPIServerWaitsForWriter"},
	{what: "a machine of the cluster is drained", tests: twoMachines + " " + leaveTests + "TestAPIServerEvicts"},
	{what: "kubelet ends an awake pod", tests: twoMachines},
	{what: "the API server is away", tests: serverTests + "TestAPIServerAway"},
	{what: "watches end, 410, 429, 409", tests: serverTests + "TestAPIServerFaults"},
	{what: "a pod is deleted by hand, or evicted for memory", tests: kubeTests + "TestFailures " + twoMachines + " " + leaveTests + "TestAPIServerEnds"},
	{what: "no room on the cluster", tests: kubeTests + "TestFailures " + serverTests + "TestAPIServerRefuses internal/program/app/room_test.go:TestMachinesWithoutRoom"},
	{what: "an image can't be pulled", tests: kubeTests + "TestFailures " + serverTests + "TestAPIServerRefuses"},
	{what: "200 sites are asked for at once", row: "200 programs woken at once"},
	{what: "a process dies between an object and its row", tests: kubeTests + "TestObjects " + serverTests + "TestAPIServerOrphans"},
	{what: "a program dials what is closed to it", tests: kubeTests + "TestClosedNetwork"},
	{what: "a bomb of processes, memory or files", tests: kubeTests + "TestConformance cluster/kube/bombs_cluster_test.go:TestBombs"},
	{what: "the server of storage hangs", tests: nodesTests + "storage_test.go:TestStorageOfAllNodes internal/program/volume/volume_test.go:TestVolume"},
	{what: "an upload through one node is read at another", tests: relayTests + "TestAnyNodeAnswersForPHP"},
	{what: "a switch that a node is not notified of", tests: nodesTests + "faults_test.go:TestNotificationsAndDatabaseAway"},
	{what: "a WebSocket and an event stream over a restart", tests: relayTests + "TestAnyNodeAnswers"},
	{what: "a restore while the program is awake elsewhere", tests: nodesTests + "storage_test.go:TestStorageOfAllNodes"},
	{what: "a challenge of ACME reaches the other node", tests: "internal/edge/certs/certs_test.go:TestTwoNodes"},
	{what: "nodes are replaced one after the other under load", tests: relayTests + "TestDrain internal/platform/db/db_test.go:TestMigrationsOnlyAdd " + installed},
	{what: "a node with another key, bucket or domain", tests: nodesTests + "programs_test.go:TestNodeThatDoesNotFit internal/platform/node/node_test.go:TestNodesMustFit"},
	{what: "a pack is cut, another one, or its address has expired", tests: kubeTests + "TestPacksAreSigned"},
	{what: "the chart is uninstalled", tests: installed},
}

// Each row has tests that exist, or a figure.
func TestFleetRows(t *testing.T) {
	t.Parallel()
	if len(fleetRows) != 28 {
		t.Errorf("%d rows, want 28", len(fleetRows))
	}
	for i, x := range fleetRows {
		shown(t, fmt.Sprintf("row %d, %s", i+1, x.what), x.tests, x.row)
	}
}

// shown tells unless there are tests, or a row of docs/benchmarks.md that begins as named.
func shown(t *testing.T, what, tests, row string) {
	t.Helper()
	if row == "" {
		testsExist(t, what, tests)
		return
	}
	text, err := os.ReadFile("docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n| "+row) {
		t.Errorf("%s: docs/benchmarks.md has no row that begins with %q", what, row)
	}
}

// fleetFigures are what several nodes are to reach, beside fleetRows: a row of docs/benchmarks.md, which begins with these words, or tests.
var fleetFigures = []struct{ what, row, tests string }{
	{what: "a wake from zero on Kubernetes", row: "start of a Node.js program on Kubernetes"},
	{what: "200 sites are asked for at once on Kubernetes", row: "200 programs woken at once"},
	{what: "what another node adds to a request", row: "latency that another node adds, p50"},
	{what: "the rate through another node", row: "requests/s through another node"},
	{what: "100 switches under load of two edges", row: "100 switches and restarts on the cluster"},
	{what: "a node is drained under load", tests: relayTests + "TestDrain " + twoMachines},
	{what: "the node of a program without storage is killed", tests: relayTests + "TestProgramMovesWhenItsNodeDies " + twoMachines},
	{what: "1,000 sites over nodes of Kubernetes", row: "1,000 sites whose programs run"},
	{what: "one machine's memory", row: "memory, idle"},
}

// Each figure has its row or its tests.
func TestFleetFigures(t *testing.T) {
	t.Parallel()
	for i, x := range fleetFigures {
		shown(t, fmt.Sprintf("figure %d, %s", i+1, x.what), x.tests, x.row)
	}
}
