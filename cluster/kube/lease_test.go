package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// A process is named for its node, whose ids have an underscore; the cluster takes none in a lease's name.
func TestLeaseName(t *testing.T) {
	name := leaseName("node_2al3wmiibhk2222r6sdgpzqekv72")
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		t.Errorf("%s: %v", name, wrong)
	}
}
