package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Node IDs contain an underscore, which the cluster doesn't allow in the name of a lease, so leaseName replaces it.
func TestLeaseName(t *testing.T) {
	name := leaseName("node_2al3wmiibhk2222r6sdgpzqekv72")
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		t.Errorf("%s: %v", name, wrong)
	}
}
