// Package kube owns the engine that runs programs on Kubernetes: one pod for each program, in one
// namespace, with nothing but what every cluster has. It knows no site's settings and decides nothing of
// what runs, as little as the engine of one machine does.
package kube

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"slipway/internal/build/bundle"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

// Config holds what an Engine needs.
type Config struct {
	Client    kubernetes.Interface
	Namespace string // of the programs, ours alone
	// Name is this process's among those of the installation: what an earlier one of this name has left
	// running is removed. Letters, digits and "-".
	Name    string
	Bundles *bundle.Bundles
	Users   runtime.Users
	Images  []Image // the newest first
	// Packs is where pods fetch the files of programs, over TLS with a certificate of the engine's own.
	Packs net.Listener
	// Canary listens where no pod may connect to, on the host of Packs: a program whose pod reaches it is
	// not started. Optional: nil starts programs unproven, on clusters that enforce no network policies.
	Canary net.Listener
	// Address is the host under which pods reach Packs and try Canary.
	Address string
	// Edge is where this installation's own sites answer over TLS, host:port. Optional: without it no program reaches its
	// own site but by the addresses that visitors use.
	Edge string
	// Own are public ranges that are the cluster's own all the same, as Policies has them.
	Own []string
	// Dir is where copies of files in programs' storage are kept while they are served. Ours alone, and emptied. Optional: empty
	// is a new one among the system's temporary folders.
	Dir string
	Log *slog.Logger // Optional.
}

// Image is an image that programs run in.
type Image struct {
	Name string `json:"name"`
	Node string `json:"node"` // the version of Node.js that it has, as "24.1.0"; empty: none
	// PHP are the versions of PHP that it has where Debian's packages put them, the newest first, as "8.4.11".
	PHP []string `json:"php"`
}

// Engine runs programs as pods. It is safe for concurrent use.
type Engine struct {
	c      Config
	packs  *packs
	copies *copies
	ways   runtime.Ways // nil: a Spec must ask for neither databases, mail nor Redis
	share  shares

	mu sync.Mutex // guards programs
	// share: total the programs that run; owner those that it may run; edge gone with the program
	programs map[string]*program // by the name of their pod
}

// Labels of the objects that the engine makes.
const (
	labelManaged = "app.kubernetes.io/managed-by"
	labelPart    = "app.kubernetes.io/component"
	labelEngine  = "slipway.dev/engine"
	labelSite    = "slipway.dev/site"
	labelOwner   = "slipway.dev/owner"
	labelProgram = "slipway.dev/program"
	labelNetwork = "slipway.dev/network"
	labelPorts   = "slipway.dev/ports" // whose policy it is that opens further ports
)

const (
	managedBy     = "slipway"
	component     = "program"
	networkClosed = "closed"
	networkPublic = "public"
)

// resync is how often what is known of pods is looked at again, beside what the cluster tells.
const resync = 5 * time.Minute

// New removes what an earlier process of the same name left, and follows the pods until ctx ends.
func New(ctx context.Context, c Config) (*Engine, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	e := &Engine{c: c, programs: map[string]*program{}, share: shares{by: map[id.Site]int{}}}
	mine := meta.ListOptions{LabelSelector: labelEngine + "=" + c.Name}
	// A pod belongs to its Secret, but deletion of those that belong takes the cluster a while.
	now := int64(0)
	err := errors.Join(
		c.Client.CoreV1().Pods(c.Namespace).DeleteCollection(ctx, meta.DeleteOptions{GracePeriodSeconds: &now}, mine),
		c.Client.CoreV1().Secrets(c.Namespace).DeleteCollection(ctx, meta.DeleteOptions{}, mine),
	)
	if err != nil {
		return nil, fmt.Errorf("remove programs of an earlier process: %w", err)
	}
	if e.packs, err = newPacks(c); err != nil {
		return nil, err
	}
	if e.copies, err = newCopies(c.Dir); err != nil {
		return nil, err
	}
	go e.packs.serve(ctx, c.Packs, c.Canary, e.take)
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, resync, informers.WithNamespace(c.Namespace),
		informers.WithTweakListOptions(func(o *meta.ListOptions) { o.LabelSelector = mine.LabelSelector }))
	pods := factory.Core().V1().Pods().Informer()
	tell := func(object any, gone bool) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		if p, ok := object.(*core.Pod); ok {
			if x := e.program(p.Name); x != nil {
				x.see(p, gone)
			}
		}
	}
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { tell(object, false) },
		UpdateFunc: func(_, object any) { tell(object, false) },
		DeleteFunc: func(object any) { tell(object, true) },
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return nil, context.Cause(ctx)
	}
	return e, nil
}

func (e *Engine) program(name string) *program {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.programs[name]
}

func (e *Engine) forget(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.programs, name)
}

// Start makes the pod of a program and returns when the program runs in it, or has ended.
func (e *Engine) Start(ctx context.Context, s runtime.Spec) (runtime.Program, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if why := refusal(s); why != "" {
		return nil, errors.New(why)
	}
	in, err := e.choose(s)
	if err != nil {
		return nil, err
	}
	uid, err := e.c.Users.UID(ctx, s.Site)
	if err != nil {
		return nil, err
	}
	name := podName(s.ID)
	x := &program{
		e: e, spec: s, name: name, token: rand.Text(), output: told(s), terminal: s.Terminal,
		seen: make(chan struct{}, 1), ended: make(chan struct{}), gone: make(chan struct{}),
	}
	secret, err := e.secret(s, name, x.token, in)
	if err != nil {
		return nil, err
	}
	if x.led, err = e.lead(ctx, s); err != nil {
		return nil, err
	}
	e.share.enter(s)
	e.mu.Lock()
	e.programs[name] = x
	e.mu.Unlock()
	made, err := e.c.Client.CoreV1().Secrets(e.c.Namespace).Create(ctx, secret, meta.CreateOptions{})
	if err == nil && s.Egress && len(s.Ports) > 0 {
		_, err = e.c.Client.NetworkingV1().NetworkPolicies(e.c.Namespace).Create(ctx, e.portsPolicy(s, made), meta.CreateOptions{})
	}
	if err == nil {
		_, err = e.c.Client.CoreV1().Pods(e.c.Namespace).Create(ctx, e.pod(s, made, in.image, int64(uid)), meta.CreateOptions{})
	}
	if err != nil {
		e.remove(name, 0)
		e.forget(name)
		x.led.close()
		e.share.leave(s)
		return nil, fmt.Errorf("start program: %w", explain(err))
	}
	if err := x.begin(ctx); err != nil {
		e.remove(name, 0)
		x.end(lost(err.Error()))
		return nil, fmt.Errorf("start program: %w", err)
	}
	return x, nil
}

// explain says in our words what the cluster refused, where that is known.
func explain(err error) error {
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota") {
		return fmt.Errorf("no room on the cluster: the quota of the namespace is reached (%w)", err)
	}
	return err
}

// removal bounds how long the deletion of a program's objects may take.
const removal = 20 * time.Second

// remove deletes the objects of a program. What can't be reached now is removed by the next process.
func (e *Engine) remove(name string, grace int64) {
	ctx, cancel := context.WithTimeout(context.Background(), removal)
	defer cancel()
	err := errors.Join(
		e.c.Client.CoreV1().Pods(e.c.Namespace).Delete(ctx, name, meta.DeleteOptions{GracePeriodSeconds: &grace}),
		e.c.Client.CoreV1().Secrets(e.c.Namespace).Delete(ctx, name, meta.DeleteOptions{}),
	)
	if err != nil && !apierrors.IsNotFound(err) {
		e.c.Log.Warn("objects of a program not removed", "program", name, "err", err)
	}
}

// podName makes a name that no other pod has.
func podName(program string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, program)
	return "program-" + strings.Trim(clean[:min(len(clean), 40)], "-") + "-" + strings.ToLower(rand.Text()[:8])
}

// label makes a label's value of a name.
func label(name string) string {
	return strings.Trim(name[:min(len(name), 63)], "-_.")
}
