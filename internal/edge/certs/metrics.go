package certs

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	orders       *prometheus.CounterVec // label result: success, failure
	hits, misses prometheus.Counter
	minted       prometheus.Counter // signed by the local authority
}

func newMetrics(reg prometheus.Registerer) metrics {
	lookups := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slipway_certificate_lookups_total", Help: "Handshakes, by whether the certificate was in memory.",
	}, []string{"result"})
	m := metrics{
		orders: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_certificate_orders_total", Help: "Attempts to get a certificate, by result.",
		}, []string{"result"}),
		hits: lookups.WithLabelValues("hit"), misses: lookups.WithLabelValues("miss"),
		minted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slipway_edge_certificates_minted_total", Help: "Certificates signed by the local authority.",
		}),
	}
	for _, result := range []string{"success", "failure"} { // export zeros, so that alerts don't see missing series
		m.orders.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(m.orders, lookups, m.minted)
	}
	return m
}
