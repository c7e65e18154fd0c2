package slipway

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"strings"
	"testing"
)

// threat is one attack on teams, OAuth and sign-in with other providers, and the tests that hold it off: file and function.
type threat struct {
	attack string
	tests  string // separated by spaces
}

const (
	oauthTests     = "internal/tenant/oauth/"
	apiTests       = "internal/web/api/"
	dashboardTests = "internal/web/dashboard/"
	teamTests      = "internal/tenant/team/team_test.go:"
	ssoTests       = "internal/tenant/sso/"
)

// threats is the list that the features were designed against, in its order: the first is number 1.
var threats = []threat{
	{"a code is used twice", oauthTests + "flow_test.go:TestCodeIsSpent e2e/oauth_test.go:TestOAuthClients"},
	{"a code of one app at another", oauthTests + "flow_test.go:TestCodeIsSpent"},
	{"many exchanges at once, on two nodes", oauthTests + "flow_test.go:TestCodeRace e2e/nodes/oauth_test.go:TestOAuthOnTwoNodes"},
	{"PKCE left out, plain or without a method", oauthTests + "flow_test.go:TestAuthorize e2e/oauth_test.go:TestOAuthClients"},
	{"a wrong verifier, or none", oauthTests + "flow_test.go:TestCodeIsSpent"},
	{"a redirect URI that is almost the registered one", oauthTests + "app_test.go:TestRedirects"},
	{"a redirect URI that runs a script or another program", oauthTests + "app_test.go:TestAppSettings"},
	{"an open redirect by a bad client or an error", oauthTests + "flow_test.go:TestAuthorize " + dashboardTests + "consent_test.go:TestConsent"},
	{"refreshes at once, on two nodes", oauthTests + "flow_test.go:TestRefresh e2e/nodes/oauth_test.go:TestOAuthOnTwoNodes"},
	{"an old refresh token", oauthTests + "flow_test.go:TestRefresh"},
	{"the answer of a refresh is lost", oauthTests + "flow_test.go:TestRefresh"},
	{"a refresh asks for more", oauthTests + "flow_test.go:TestRefresh"},
	{"a role is lowered after the consent", dashboardTests + "consent_team_test.go:TestConsentForTeam"},
	{"an app makes a key that outlives its grant", oauthTests + "flow_test.go:TestAuthorize"},
	{"what an app made, or changed, outlives its grant", dashboardTests + "consent_team_test.go:TestUninstall " + apiTests + "oauth_test.go:TestAppsChangeWhatTheyCreated"},
	{"the consent page in a frame", "e2e/browser/oauth_test.go:TestBrowserOAuth"},
	{"consent sent from another site", "e2e/browser/oauth_test.go:TestBrowserOAuth " + dashboardTests + "sign_test.go:TestForeignForms"},
	{"consent to something else than the page showed", oauthTests + "flow_test.go:TestConsentIsBound"},
	{"another account between the page and its form", oauthTests + "flow_test.go:TestConsentIsBound"},
	{"login CSRF, and a next address elsewhere", dashboardTests + "sign_test.go:TestSignIn " + dashboardTests + "sso_test.go:TestFixation " + ssoTests + "flow_test.go:TestState"},
	{"mix-up of two servers", "e2e/oauth_test.go:TestOAuthClients " + ssoTests + "token_test.go:TestMixUp"},
	{"a token in a query, a log or a stored answer", "e2e/oauth_test.go:TestOAuthSecretsAreNotKept"},
	{"a Referer leaks a request or a code", "e2e/browser/oauth_test.go:TestBrowserOAuth"},
	{"user codes are guessed", oauthTests + "device_test.go:TestDeviceGrant " + dashboardTests + "consent_test.go:TestDevice"},
	{"phishing with a device code", dashboardTests + "consent_test.go:TestDevice e2e/browser/oauth_test.go:TestBrowserOAuth"},
	{"a device polls too fast, or redeems twice", oauthTests + "device_test.go:TestDeviceGrant"},
	{"a metadata document inside our network, endless, or of another app", oauthTests + "app_test.go:TestMetadataDocuments internal/platform/egress/egress_test.go:TestDialRefusesRebinding"},
	{"an app that is called like us", oauthTests + "app_test.go:TestAppSettings"},
	{"a token of another resource", apiTests + "oauth_test.go:TestTokensOfOtherResources internal/web/oauth/oauth_test.go:TestErrors"},
	{"a rate limit avoided by many tokens", apiTests + "oauth_test.go:TestOneWindowPerGrant"},
	{"a removed member's key, token, stream, terminal and cookie", "e2e/nodes/oauth_test.go:TestOAuthOnTwoNodes " +
		dashboardTests + "terminal_test.go:TestTerminalEndsWithTheMembership internal/tenant/member/member_test.go:TestMembersOfATeam"},
	{"a removal while a request is under way", teamTests + "TestRemovalUndoesWhatIsUnderWay"},
	{"a removed member's queued deployment", "e2e/builds/team_test.go:TestQueuedDeploymentOfARemovedMember " +
		"internal/program/app/task_test.go:TestCommandEndsWithTheRight"},
	{"two owners remove each other", teamTests + "TestLastOwnerUnderRaces"},
	{"the last owner deletes their account, or is suspended", teamTests + "TestLastOwnerUnderRaces " + teamTests + "TestSuspendedOwnersDontCount " +
		dashboardTests + "operator_people_test.go:TestSuspendLastOwner"},
	{"an invitation accepted by another address", apiTests + "teams_test.go:TestInvitations"},
	{"addresses that look alike", apiTests + "teams_test.go:TestInvitations"},
	{"an invitation above the inviter's role", apiTests + "teams_test.go:TestInvitations"},
	{"a link preview opens an invitation", dashboardTests + "invitation_test.go:TestInvitationPage"},
	{"an invitation tells who has an account", apiTests + "teams_test.go:TestInvitations"},
	{"a transfer accepted twice, or canceled meanwhile", apiTests + "transfers_test.go:TestTransferByCode"},
	{"a transfer while a deployment starts", apiTests + "transfers_test.go:TestTransferByCode"},
	{"the sender's DNS record takes the domain back", "internal/tenant/domain/transfer_test.go:TestTransferredDomainStays"},
	{"the sender's hook after the transfer", apiTests + "transfers_test.go:TestTransferForgetsNoTable"},
	{"a table that the transfer forgot", apiTests + "transfers_test.go:TestTransferForgetsNoTable"},
	{"a team deleted while it deploys", "e2e/builds/team_test.go:TestTeamDeletedWhileItDeploys"},
	{"the slug of a deleted team", teamTests + "TestDeleteWithSites"},
	{"an answer replayed for another team", apiTests + "teams_test.go:TestOneCredentialOneOwner"},
	{"an address of another issuer (nOAuth)", ssoTests + "email_test.go:TestEmailIsNoIdentity"},
	{"forged tokens of an issuer", ssoTests + "token_test.go:TestForgedTokens"},
	{"a password or an old key where SSO is required", ssoTests + "required_test.go:TestRequired"},
	{"the provider that a team requires is down", ssoTests + "required_test.go:TestNoLockOut"},
	{"a guest reads more than their site", apiTests + "teams_test.go:TestGuest " + apiTests + "roles_test.go:TestRoleMatrix " +
		dashboardTests + "team_test.go:TestRolesBySession"},
}

// Each threat is held off by tests that exist.
func TestThreats(t *testing.T) {
	t.Parallel()
	if len(threats) != 53 {
		t.Errorf("%d threats, want 53", len(threats))
	}
	for i, x := range threats {
		testsExist(t, fmt.Sprintf("threat %d, %s", i+1, x.attack), x.tests)
	}
}

// testsExist fails the test where something names no tests, or one that doesn't exist.
func testsExist(t *testing.T, what, tests string) {
	t.Helper()
	if tests == "" {
		t.Errorf("%s, has no test", what)
	}
	for name := range strings.FieldsSeq(tests) {
		file, test, _ := strings.Cut(name, ":")
		if strings.HasSuffix(file, ".txtar") {
			if _, err := os.Stat(path.Clean(file)); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		} else if !testsIn(t, file)[test] {
			t.Errorf("%s: there is no %s in %s", what, test, file)
		}
	}
}

// testsIn returns the tests of a file.
func testsIn(t *testing.T, file string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(path.Clean(file))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
			out[f.Name.Name] = true
		}
	}
	return out
}
