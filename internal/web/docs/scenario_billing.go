package docs

// billingScenario has the examples of plans, invoices and payments for installations with billing. INVOICE_ID is the
// newest invoice.
var billingScenario = Scenario{"billing", []Step{
	{Operation: "listPlans"},
	{Operation: "setBillingProfile", Body: `{
  "name": "Acme GmbH",
  "address": "Hafenstraße 1\n20457 Hamburg",
  "country": "DE"
}`},
	{Operation: "getBillingProfile"},
	{Operation: "previewBilling", Body: `{
  "action": "subscribe",
  "plan": "pro"
}`, Keep: []string{"PREVIEW=digest"}},
	{Operation: "createSubscription", Body: `{
  "plan": "pro",
  "digest": "$PREVIEW"
}`},
	{Operation: "getSubscription"},
	{Operation: "listInvoices", Query: "limit=25"},
	{Operation: "getInvoice"},
	{Operation: "listReceivables", Key: "OPERATOR_KEY"},
	{Operation: "recordPayment", Key: "OPERATOR_KEY", With: invoice, Body: `{
  "amount": 2261,
  "reference": "2026-12-03/0817"
}`},
	{Operation: "refundInvoice", Key: "OPERATOR_KEY", With: invoice, Body: `{
  "amount": 500,
  "reason": "Outage on 3 December",
  "reference": "2026-12-09/0042"
}`},
	{Operation: "voidInvoice", Key: "OPERATOR_KEY", With: invoice, Body: `{
  "reason": "Ordered by mistake"
}`},
	{Operation: "listPayments"},
	{Operation: "updateSubscription", Body: `{
  "plan": "max"
}`},
	{Operation: "payInvoice"},
	{Operation: "setBudget", Body: `{
  "amount": 5000,
  "currency": "EUR"
}`},
	{Operation: "getBudget"},
	{
		Operation: "setPaymentMethod", Body: `{
  "currency": "EUR"
}`,
		Until: [3]string{"/billing/payment-method", "last4", "4242"},
	},
	{Operation: "getPaymentMethod"},
	{Operation: "deletePaymentMethod"},
	{Operation: "cancelSubscription", Query: "now=false"},
	{Operation: "resumeSubscription"},
	{Operation: "listCustomers", Key: "OPERATOR_KEY", Query: "search=example&limit=25"},
	{Operation: "createCustomerSubscription", Key: "OPERATOR_KEY", With: customer, Body: `{
  "plan": "pro"
}`},
	{Operation: "getCustomer", Key: "OPERATOR_KEY", With: customer},
	{Operation: "updateCustomerSubscription", Key: "OPERATOR_KEY", With: customer, Body: `{
  "plan": "max"
}`},
	{
		Operation: "createLimitGrant", Key: "OPERATOR_KEY", With: customer, Body: `{
  "name": "sites",
  "value": 50,
  "until": "2040-01-31T09:00:00Z",
  "reason": "Migration"
}`,
		Keep: []string{"GRANT_ID=id"},
	},
	{Operation: "listLimitGrants", Key: "OPERATOR_KEY", With: customer},
	{Operation: "deleteLimitGrant", Key: "OPERATOR_KEY", With: map[string]string{"id": "$CUSTOMER_ID", "grant": "$GRANT_ID"}},
	{Operation: "createCredit", Key: "OPERATOR_KEY", With: customer, Body: `{
  "amount": 1000,
  "currency": "EUR",
  "reason": "Outage on 3 December"
}`},
	{Operation: "cancelCustomerSubscription", Key: "OPERATOR_KEY", With: customer, Query: "now=true"},
	{Operation: "createSeller", Key: "OPERATOR_KEY", Body: `{
  "id": "harbor",
  "name": "Harbor",
  "series": "HB"
}`},
	{Operation: "setSellerSettings", Key: "OPERATOR_KEY", With: reseller, Body: `{
  "seller": {"name": "Harbor Hosting GmbH", "country": "DE", "vatId": "DE987654321"},
  "payment": "IBAN DE75 5121 0800 1245 1261 99",
  "taxes": {"DE": 1900}
}`},
	{Operation: "getSellerSettings", Key: "OPERATOR_KEY", With: reseller},
	{Operation: "updateSeller", Key: "OPERATOR_KEY", With: reseller, Body: `{
  "name": "Harbor & Sons",
  "replyTo": "support@harbor.example"
}`},
	{Operation: "setCustomerSeller", Key: "OPERATOR_KEY", With: customer, Body: `{
  "seller": "harbor"
}`},
	{Operation: "getSeller", Key: "OPERATOR_KEY", With: reseller},
	{Operation: "listSellers", Key: "OPERATOR_KEY"},
	{Operation: "listMargins", Key: "OPERATOR_KEY"},
	{Operation: "getReconciliation", Key: "OPERATOR_KEY"},
}}

var (
	invoice  = map[string]string{"id": "$INVOICE_ID"}
	customer = map[string]string{"id": "$CUSTOMER_ID"}
	reseller = map[string]string{"id": "harbor"}
)
