package certs

import "github.com/prometheus/client_golang/prometheus"

// metrics are made whether or not somebody collects them.
type metrics struct {
	orders       *prometheus.CounterVec // by result: success, failure
	hits, misses prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) metrics {
	lookups := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slipway_certificate_lookups_total", Help: "Handshakes, by whether the certificate was in memory."}, []string{"result"})
	m := metrics{
		orders: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_certificate_orders_total", Help: "Attempts to get a certificate, by result."}, []string{"result"}),
		hits: lookups.WithLabelValues("hit"), misses: lookups.WithLabelValues("miss"),
	}
	if reg != nil {
		reg.MustRegister(m.orders, lookups)
	}
	return m
}
