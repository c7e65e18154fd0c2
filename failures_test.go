package slipway

import (
	"fmt"
	"testing"
)

const (
	billingTests = "internal/tenant/billing/"
	usageTests   = "internal/tenant/usage/"
	stripeTests  = "internal/tenant/stripe/stripe_test.go:"
	killedTests  = "internal/tenant/stripe/kill_test.go:TestKilled"
	moneyTests   = "internal/tenant/money/money_test.go:"
)

// failures are what can go wrong with usage, money and Stripe, and the tests that show what happens then. Tests name them by their
// place in this list: the first is failure 1.
var failures = []struct{ what, tests string }{
	{"the process is killed between a charge and its commit", killedTests + " " + stripeTests + "TestCharges " + stripeTests + "TestPageOfKilledProcess"},
	{"Stripe's answer is lost after it charged", stripeTests + "TestCharges " + stripeTests + "TestNeverSent"},
	{"two workers charge one invoice", stripeTests + "TestCharges " + billingTests + "billing_test.go:TestAtOnce"},
	{"Pay now while dunning charges", stripeTests + "TestCharges " + stripeTests + "TestPage"},
	{"a transfer is recorded while a card is charged", stripeTests + "TestCharges"},
	{"the same event twenty times at once", stripeTests + "TestTakes " + billingTests + "billing_test.go:TestAtOnce"},
	{"the same fact under another event's id", stripeTests + "TestOrders"},
	{"events in every order", stripeTests + "TestOrders " + stripeTests + "TestFetchAll"},
	{"a webhook that never arrives", stripeTests + "TestReconciles"},
	{"an event is replayed a day later", stripeTests + "TestTakes"},
	{"an event's time is in the future", stripeTests + "TestTakes"},
	{"an event is forged, cut or encoded again", stripeTests + "TestTakes"},
	{"an event of test mode or of another account", stripeTests + "TestTakes"},
	{"two endpoints of one account", stripeTests + "TestTakes"},
	{"a period is renewed by a webhook and by the clock", billingTests + "billing_test.go:TestAtOnce"},
	{"a reminder is sent four times", billingTests + "billing_test.go:TestDunning"},
	{"an old subscription's end hits the new one", billingTests + "billing_test.go:TestNextSubscription"},
	{"usage is written again", usageTests + "usage_test.go:TestEveryHistoryCountsOnce"},
	{"the process is killed while usage is written", usageTests + "usage_test.go:TestEveryHistoryCountsOnce " + killedTests},
	{"a node is cut off for three hours", usageTests + "usage_test.go:TestLateQuantities " + usageTests + "usage_test.go:TestEveryHistoryCountsOnce"},
	{"the clock steps back an hour", usageTests + "usage_test.go:TestEveryHistoryCountsOnce"},
	{"leap days, the 31st, changes of clocks", billingTests + "plan/term_test.go:TestAnchors " + billingTests + "billing_test.go:TestTwoYears"},
	{"an outage over three periods", billingTests + "billing_test.go:TestOutage"},
	{"tiers at the end of 64 bits", moneyTests + "TestMulDivAgainstBig " + moneyTests + "TestTiersAgainstBig"},
	{"currencies without two decimal places", moneyTests + "TestDecimals " + stripeTests + "TestSmallestUnits"},
	{"a coupon is redeemed a hundred times at once", billingTests + "billing_test.go:TestCoupons"},
	{"trials by the dozen", billingTests + "billing_test.go:TestTrial " + stripeTests + "TestSetups"},
	{"fifty changes of the plan within an hour", billingTests + "billing_test.go:TestManyChanges"},
	{"a downgrade below what is used", billingTests + "billing_test.go:TestEntitlements"},
	{"another currency", billingTests + "billing_test.go:TestOtherTerms " + stripeTests + "TestCurrencies"},
	{"a payment that the bank wants confirmed is abandoned", stripeTests + "TestConfirmation"},
	{"a refund twice, or above what was paid", billingTests + "billing_test.go:TestMoney " + stripeTests + "TestRefunds"},
	{"a payment that the bank takes back", stripeTests + "TestDisputes"},
	{"the check of a VAT number is down", billingTests + "vies/vies_test.go:TestVIES " + billingTests + "vies/vies_test.go:TestChangedMeanwhile " + billingTests + "party/tax_test.go:TestTaxes"},
	{"an account is deleted with an open invoice", billingTests + "deleted_test.go:TestDeletedAccount"},
	{"another owner's invoice or its PDF", billingTests + "billing_test.go:TestOthersInvoices " + apiTests + "billing_test.go:TestBilling " +
		dashboardTests + "plan_page_test.go:TestPlanPages"},
	{"negative quantities and amounts, huge budgets", billingTests + "billing_test.go:TestRefused " + apiTests + "billing_test.go:TestBillingRefuses"},
	{"a secret in a log, an error, the database or a backup", stripeTests + "TestTakes e2e/paid_test.go:TestPaidPlan"},
	{"a cap on several nodes", usageTests + "lend_test.go:TestLend internal/server/usage_test.go:TestCapHoldsOnThreeNodes e2e/nodes/caps_test.go:TestCapOnThreeNodes"},
	{"billing is off", apiTests + "billing_test.go:TestNoBilling " + dashboardTests + "plan_page_test.go:TestPlanPages e2e/testdata/no-billing.txtar e2e/no_billing_test.go:TestNoWordOfBilling"},
}

// Each failure of billing has tests that exist.
func TestFailures(t *testing.T) {
	t.Parallel()
	if len(failures) != 40 {
		t.Errorf("%d failures, want 40", len(failures))
	}
	for i, x := range failures {
		testsExist(t, fmt.Sprintf("failure %d, %s", i+1, x.what), x.tests)
	}
}
