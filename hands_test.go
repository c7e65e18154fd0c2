package slipway

import (
	"fmt"
	"testing"
)

const (
	uploadTests  = apiTests + "uploads_test.go:"
	e2eUploads   = "e2e/uploads_test.go:"
	archiveTests = "internal/wordpress/archive/unpack_test.go:"
	clientTests  = "internal/client/"
	cliTests     = clientTests + "cli/"
	commandTests = "cmd/slipway/process_test.go:"
	upgradeTests = "internal/operator/upgrade/upgrade_test.go:"
)

// inHands are the attacks on what people hold in their hands, and what fails there: the command line, uploads, agents,
// upgrades and imports. Tests name them by their place: the first is row 1.
var inHands = []struct{ what, tests string }{
	{"a manifest names a stranger's digest", uploadTests + "TestUploadTellsNothingOfOthers"},
	{"the answer tells what others store", uploadTests + "TestUploadTellsNothingOfOthers"},
	{"wrong bytes for a digest", uploadTests + "TestUpload"},
	{"a frame lies about its length", uploadTests + "TestUploadRefusesMalformedBodies"},
	{"a manifest that is a bomb", uploadTests + "TestUploadRefusesMalformedBodies"},
	{"an archive that is a bomb, or leads outside", apiTests + "archive_test.go:TestArchiveRefuses " + archiveTests + "TestUnpackIsBounded"},
	{"paths that lead out, or are twins", uploadTests + "TestUploadRefusesMalformedBodies"},
	{"the connection dies at every MiB", e2eUploads + "TestUploadCutAtEveryMiB " + apiTests + "archive_test.go:TestUploadInParts"},
	{"kill -9 between a blob and its deployment", e2eUploads + "TestUploadSurvivesKills"},
	{"a sweep during a slow upload", "internal/deploy/deploy/upload_test.go:TestSweepSparesOpenUploads"},
	{"two deployments of one upload at once", uploadTests + "TestUploadIsDeployedOnce"},
	{"the quota is reached by another upload", uploadTests + "TestUploadCountsStorage internal/deploy/deploy/upload_test.go:TestContentsOfOtherUploadsCount"},
	{"a body that trickles", apiTests + "slow_body_test.go:TestBodyThatOutlivesItsKey"},
	{"a file changes while it is read", clientTests + "upload/upload_test.go:TestFileChangesWhileSent"},
	{"secrets and ignored files in the folder", clientTests + "folder/folder_test.go:TestWhichFiles " + clientTests + "folder/folder_test.go:TestIgnoreAgreesWithGit"},
	{"a link in the folder to a file outside", clientTests + "folder/folder_test.go:TestWhichFiles"},
	{"a repository with a planted link", cliTests + "hostile_test.go:TestForeignLink " + cliTests + "hostile_test.go:TestWritesFollowNoLink"},
	{"the server redirects to another host", clientTests + "rest/rest_test.go:TestRedirectsAreNotFollowed"},
	{"control characters in logs and names", "internal/platform/text/terminal_test.go:TestPrintable " + cliTests + "hostile_test.go:TestOutputDrivesNoTerminal"},
	{"a file of credentials that others read", clientTests + "login/login_test.go:TestFileIsPrivate"},
	{"two command lines refresh at once", clientTests + "login/login_test.go:TestRefreshIsExchangedOnce"},
	{"phishing with a device code", oauthTests + "device_test.go:TestDeviceGrant " + dashboardTests + "consent_test.go:TestDevice"},
	{"the key in the environment of children", cliTests + "hostile_test.go:TestChildrenGetNoKey"},
	{"the output is closed, or Ctrl-C twice", commandTests + "TestOutputIsLost " + commandTests + "TestInterruptedRequest " +
		commandTests + "TestInterruptedTwice " + commandTests + "TestInterruptedSecret"},
	{"the command line in a build", cliTests + "hostile_test.go:TestFlagsFromTheEnvironment"},
	{"a log line that gives an agent orders", "internal/web/mcp/mcp_test.go:TestMark " + apiTests + "mcp_confirm_test.go:TestReadersCantDestroy"},
	{"a confirmation is replayed, changed, another's or late", apiTests + "mcp_confirm_test.go:TestAgentsAreConfirmed " +
		dashboardTests + "confirmation_test.go:TestConfirmAgentsCall"},
	{"an agent from a web page or behind a proxy", apiTests + "mcp_test.go:TestHostileAgents"},
	{"a token of another audience", apiTests + "mcp_test.go:TestAgentTokens"},
	{"an answer of 10 MB to an agent", "internal/web/mcp/mcp_test.go:TestFitting"},
	{"a secret in Terraform's state", "terraform/provider/lifecycle_test.go:TestEnv terraform/provider/docs_test.go:TestGuide"},
	{"a site that Terraform knows changes outside", "terraform/provider/lifecycle_test.go:TestSite terraform/provider/resources_test.go:TestWaits"},
	{"a provider that is older than the server", "terraform/provider/resources_test.go:TestNewerServer"},
	{"a release that is tampered with, or old", upgradeTests + "TestUpgradeRefuses"},
	{"a new binary that doesn't work", upgradeTests + "TestUpgradeReturns"},
	{"power cuts in each step of an upgrade", "e2e/upgrade_test.go:TestUpgradeSurvivesPowerCuts"},
	{"a full disk while an upgrade takes its snapshot", "e2e/upgrade_test.go:TestUpgradeOnAFullDisk"},
	{"the package's scripts run twice, or without systemd", "scripts/release/debian_test.go:TestDebian"},
	{"remove, purge and install again", "scripts/release/debian_test.go:TestDebian"},
	{"containers without rights", "scripts/image/podman_test.go:TestImage"},
	{"the installer is cut off", "packaging/install_test.go:TestInstallerCutOffRunsNothing"},
	{"an import without a right, or whose pages change", clientTests + "imports/imports_test.go:TestPlanIsPartial e2e/import_test.go:TestImportFromPlatform"},
	{"an import from an address inside", "internal/platform/egress/egress_test.go:TestDialRefusesRebinding"},
	{"archives that lie or lead outside", clientTests + "wparchive/wparchive_test.go:TestHostileArchives " + archiveTests + "TestUnpackStaysInside"},
	{"a move that CAA or AAAA records spoil", cliTests + "domains_plan_test.go:TestDomainsPlan"},
}

// Each row has tests that exist.
func TestInHands(t *testing.T) {
	t.Parallel()
	if len(inHands) != 45 {
		t.Errorf("%d rows, want 45", len(inHands))
	}
	for i, x := range inHands {
		testsExist(t, fmt.Sprintf("row %d, %s", i+1, x.what), x.tests)
	}
}

// newcomers are the first things that people do here, each told to the real program.
var newcomers = []struct{ what, tests string }{
	{"an empty folder is live in two commands", "e2e/testdata/newcomer-folder.txtar"},
	{"a folder with a Node.js server", "e2e/testdata/newcomer-node.txtar"},
	{"a folder with PHP", "e2e/testdata/newcomer-php.txtar"},
	{"what another tool has built", "e2e/testdata/newcomer-prebuilt.txtar"},
	{"a folder or zip that is dropped into the dashboard", dashboardTests + "browser_drop_test.go:TestBrowserDrop"},
	{"a WordPress", "e2e/wordpress/ten_test.go:TestBrowserTenStories e2e/wordpress/docs_test.go:TestDocumentedExamples"},
	{"moving from Vercel", "e2e/testdata/newcomer-vercel.txtar e2e/terminal_test.go:TestDocumentedTerminal"},
	{"a domain", "e2e/domains/story_test.go:TestStory e2e/terminal_test.go:TestDocumentedTerminal"},
	{"an agent by MCP", "e2e/testdata/newcomer-agent.txtar e2e/mcp_test.go:TestMCPServe"},
	{"Terraform", "terraform/provider/docs_test.go:TestGuide"},
}

// Each newcomer's story has tests that exist, and so have the large folders.
func TestNewcomers(t *testing.T) {
	t.Parallel()
	if len(newcomers) != 10 {
		t.Errorf("%d stories, want 10", len(newcomers))
	}
	for i, x := range newcomers {
		testsExist(t, fmt.Sprintf("story %d, %s", i+1, x.what), x.tests)
	}
	testsExist(t, "1 of 10,000 files in four requests", e2eUploads+"TestUploadOfUnchangedFiles")
	testsExist(t, "300 MiB cut at every MiB", e2eUploads+"TestUploadCutAtEveryMiB")
}
