// Package kubetest owns test helpers for the engine and the chart: an API server without nodes, and enforcement of
// network policies without a plug-in.
package kubetest

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// Enforce acts as a network plug-in: it repeatedly translates a namespace's network policies to rules of this node
// until done is called. When done returns the rules are gone, since later pods may reuse addresses. It needs root and
// nft.
func Enforce(ctx context.Context, c kubernetes.Interface, namespace string) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	table := "slipway_" + strings.ReplaceAll(namespace, "-", "_")
	over := make(chan struct{})
	go func() {
		defer close(over)
		enforce(ctx, c, namespace, table)
	}()
	return func() {
		cancel()
		<-over
		load(fmt.Sprintf("table ip %[1]s\ndelete table ip %[1]s\n", table))
	}
}

// load applies rules to the node and reports success.
func load(rules string) bool {
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(rules)
	out, err := nft.CombinedOutput()
	if err != nil {
		fmt.Printf("nft: %v: %s\n%s\n", err, out, rules)
	}
	return err == nil
}

func enforce(ctx context.Context, c kubernetes.Interface, namespace, table string) {
	var last string
	for ctx.Err() == nil {
		pods, err := c.CoreV1().Pods("").List(ctx, meta.ListOptions{})
		policies, err2 := c.NetworkingV1().NetworkPolicies(namespace).List(ctx, meta.ListOptions{})
		namespaces, err3 := c.CoreV1().Namespaces().List(ctx, meta.ListOptions{})
		if err == nil && err2 == nil && err3 == nil {
			if rules := rules(table, namespace, view{pods.Items, namespaces.Items}, policies.Items); rules != last && load(rules) {
				last = rules
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// view holds the objects that policies select.
type view struct {
	pods       []core.Pod
	namespaces []core.Namespace
}

// address returns a pod's address, or "" if it has none.
func address(p core.Pod) string {
	if p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed {
		return ""
	}
	return p.Status.PodIP
}

// of returns a peer's addresses in nft's syntax, or "".
func (v view) of(peer networking.NetworkPolicyPeer, namespace, direction string) string {
	if b := peer.IPBlock; b != nil {
		except := ""
		if len(b.Except) > 0 {
			except = " ip " + direction + " != { " + strings.Join(b.Except, ", ") + " }"
		}
		return "ip " + direction + " " + b.CIDR + except
	}
	among := map[string]bool{namespace: peer.NamespaceSelector == nil}
	for _, n := range v.namespaces {
		if peer.NamespaceSelector != nil {
			among[n.Name] = selects(peer.NamespaceSelector, n.Labels)
		}
	}
	found := map[string]bool{}
	for _, p := range v.pods {
		if at := address(p); at != "" && among[p.Namespace] && selects(peer.PodSelector, p.Labels) {
			found[at] = true
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "ip " + direction + " { " + strings.Join(slices.Sorted(maps.Keys(found)), ", ") + " }"
}

// selects reports whether a selector matches labels; nil matches all.
func selects(s *meta.LabelSelector, of map[string]string) bool {
	if s == nil {
		return true
	}
	selector, err := meta.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(of))
}

// rules returns the rules of one table. A pod selected by a policy only communicates as its policies allow.
func rules(table, namespace string, v view, policies []networking.NetworkPolicy) string {
	var out, in strings.Builder
	for _, p := range v.pods {
		ip := address(p)
		if p.Namespace != namespace || ip == "" {
			continue
		}
		var closedOut, closedIn bool
		for _, policy := range policies {
			if !selects(&policy.Spec.PodSelector, p.Labels) {
				continue
			}
			closedOut = closedOut || slices.Contains(policy.Spec.PolicyTypes, networking.PolicyTypeEgress)
			closedIn = closedIn || slices.Contains(policy.Spec.PolicyTypes, networking.PolicyTypeIngress)
			for _, r := range policy.Spec.Egress {
				for _, to := range r.To {
					v.accept(&out, "ip saddr "+ip, v.of(to, namespace, "daddr"), r.Ports)
				}
			}
			for _, r := range policy.Spec.Ingress {
				for _, from := range r.From {
					v.accept(&in, "ip daddr "+ip, v.of(from, namespace, "saddr"), r.Ports)
				}
			}
		}
		if closedOut {
			fmt.Fprintf(&out, "    ip saddr %s reject\n", ip)
		}
		if closedIn {
			fmt.Fprintf(&in, "    ip daddr %s reject\n", ip)
		}
	}
	// Traffic from pods to the node is input, between pods forward, and from the node output.
	return fmt.Sprintf(`table ip %[1]s
delete table ip %[1]s
table ip %[1]s {
  chain egress {
%[2]s  }
  chain ingress {
%[3]s  }
  chain input { type filter hook input priority 0; ct state established,related accept; jump egress; }
  chain forward { type filter hook forward priority 0; ct state established,related accept; jump egress; jump ingress; }
  chain output { type filter hook output priority 0; ct state established,related accept; jump ingress; }
}
`, table, out.String(), in.String())
}

// accept writes a rule for each of a policy's ports.
func (v view) accept(to *strings.Builder, own, peer string, ports []networking.NetworkPolicyPort) {
	if peer == "" {
		return
	}
	for _, port := range ports {
		n := port.Port.String()
		if port.EndPort != nil {
			n += fmt.Sprintf("-%d", *port.EndPort)
		}
		fmt.Fprintf(to, "    %s %s %s dport %s return\n", own, peer, strings.ToLower(string(*port.Protocol)), n)
	}
}
