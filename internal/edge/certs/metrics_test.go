package certs

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Both counters of orders exist from the start with the value 0, because an alert compares failures with successes.
func TestOrdersFromTheStart(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	newMetrics(reg)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "slipway_certificate_orders_total" {
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	success, ok := got["success"]
	failure, also := got["failure"]
	if !ok || !also || success != 0 || failure != 0 || len(got) != 2 {
		t.Errorf("before the first order: %v", got)
	}
}
