// Package kube owns the engine that runs programs on Kubernetes: one pod per program in one namespace, with only
// standard features. Like the engine for a single machine, it knows no site's settings and makes no decisions about
// what runs.
package kube

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"slipway/cluster/pod"
	"slipway/internal/build/bundle"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

type Config struct {
	Client    kubernetes.Interface
	Namespace string // for programs only
	// Name identifies this process in the installation. New removes what an earlier process of this name left running.
	// Letters, digits and "-".
	Name    string
	Bundles *bundle.Bundles
	Users   runtime.Users
	// UIDs is added to the user IDs from Users, which are those of a single machine.
	UIDs   int64
	Images []Image // newest first
	// BuildImage is the image of builds. Optional: without it, builds are refused.
	BuildImage string
	// Owner is the ConfigMap that owns Secrets and thereby pods, so that the cluster deletes them with it. Optional.
	Owner string
	// Packs listens for pods that fetch programs' files, over TLS with the engine's own certificate.
	Packs net.Listener
	// Canary listens on the host of Packs at a port that pods must not reach. A program whose pod reaches it isn't
	// started. Optional: nil starts programs without this check, for clusters that don't enforce network policies.
	Canary net.Listener
	// Address is the host at which pods reach Packs and try Canary.
	Address string
	// Edge is the host:port where this installation's sites are served over TLS. Optional: without it, a program
	// reaches its own site only at its public address.
	Edge string
	// Own lists public ranges that belong to the cluster, as in Policies.
	Own []string
	// Dir is an exclusive directory, emptied at start, for copies of files in programs' storage while they are served.
	// Optional: empty creates one in the system's temporary directory.
	Dir string
	// Redis says whether the operator has configured a Redis server, to which the ways lead.
	Redis   bool
	Storage Storage
	Log     *slog.Logger // Optional.
}

// Image is a container image for programs.
type Image struct {
	Name string `json:"name"`
	Node string `json:"node"` // version of Node.js, such as "24.1.0"; empty: none
	// PHP lists the versions of PHP in the locations of Debian's packages, newest first, such as "8.4.11".
	PHP []string `json:"php"`
}

// Engine runs programs as pods. It is safe for concurrent use.
type Engine struct {
	c       Config
	life    string // identifies this process among those with the same name
	packs   *packs
	copies  *copies
	mirrors mirrors
	ways    runtime.Ways // nil: a Spec must not ask for databases, mail or Redis
	share   shares

	mu sync.Mutex // guards programs
	// share: total the programs that run; owner those that it may run; edge gone with the program
	programs map[string]*program // by pod name
	holds    *holds
	port     int         // of pods
	pods     cache.Store // this process's pods as watched from the cluster
	shunned  shunned
	owner    []meta.OwnerReference // of objects without another owner
}

// Labels of the engine's objects.
const (
	labelManaged = "app.kubernetes.io/managed-by"
	labelPart    = "app.kubernetes.io/component"
	labelEngine  = "slipway.dev/engine"
	labelProcess = "slipway.dev/process" // life of the engine that created it
	labelSite    = "slipway.dev/site"
	labelOwner   = "slipway.dev/owner"
	labelProgram = "slipway.dev/program"
	labelNetwork = "slipway.dev/network"
	labelPorts   = "slipway.dev/ports" // program whose additional ports the policy opens
)

const (
	managedBy     = "slipway"
	component     = "program"
	networkClosed = "closed"
	networkPublic = "public"
)

// resync is the interval of rechecking pods besides watching.
const resync = 5 * time.Minute

// New replaces an earlier process of the same name and watches the pods until ctx ends. Removal of the earlier
// process's pods continues in the background.
func New(ctx context.Context, c Config) (*Engine, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if err := c.Storage.check(); err != nil {
		return nil, err
	}
	e := &Engine{c: c, life: strings.ToLower(rand.Text()), programs: map[string]*program{}, holds: newHolds(), port: pod.Port, share: shares{by: map[id.Site]map[*program]bool{}}}
	if c.Owner != "" {
		o, err := c.Client.CoreV1().ConfigMaps(c.Namespace).Get(ctx, c.Owner, meta.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("find the owner of programs: %w", err)
		}
		e.owner = []meta.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID}}
	}
	// Renew the lease before removing or creating anything, so that others see that this name is in use.
	err := e.renew(ctx)
	if err != nil {
		return nil, fmt.Errorf("replace an earlier process: %w", err)
	}
	if e.packs, err = newPacks(c); err != nil {
		return nil, err
	}
	if e.copies, err = newCopies(c.Dir); err != nil {
		return nil, err
	}
	e.mirrors = mirrors{dir: filepath.Join(e.copies.dir, "stored"), by: map[id.Site]*mirror{}}
	go e.packs.serve(ctx, c.Packs, c.Canary, e.take)
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, resync, informers.WithNamespace(c.Namespace),
		informers.WithTweakListOptions(func(o *meta.ListOptions) { o.LabelSelector = labelEngine + "=" + c.Name }))
	pods := factory.Core().V1().Pods().Informer()
	e.pods = pods.GetStore()
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
	// Drop managedFields, the larger part of a pod.
	err = pods.SetTransform(func(object any) (any, error) {
		if p, ok := object.(*core.Pod); ok {
			p.ManagedFields = nil
		}
		return object, nil
	})
	if err != nil {
		return nil, err
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
	go func() {
		if err := e.removeOf(ctx, c.Name, ","+labelProcess+"!="+e.life); err != nil && ctx.Err() == nil {
			c.Log.Warn("programs of an earlier process not removed, will be retried", "err", err)
		}
		e.live(ctx)
	}()
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

// Start creates a program's pod and returns once the program is running or has ended.
func (e *Engine) Start(ctx context.Context, s runtime.Spec) (runtime.Program, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	in, err := e.choose(s)
	if err != nil {
		return nil, err
	}
	uid, err := e.c.Users.UID(ctx, s.Site)
	if err != nil {
		return nil, err
	}
	done, waited, err := e.holds.enter(ctx, s.Site)
	if err != nil {
		return nil, err
	}
	defer done()
	if waited && s.Fresh {
		return nil, runtime.ErrHeld
	}
	var k kept
	err = e.patiently(ctx, &s, func() (err error) { k, err = e.prepareStorage(ctx, s); return err })
	if err != nil {
		return nil, fmt.Errorf("start program: %w", explain(err))
	}
	x, err := e.launch(ctx, s, in, int64(uid), k)
	if err == nil && x.refusedToWrite() {
		k.readOnly = true
		x, err = e.launch(ctx, s, in, int64(uid), k)
	}
	if err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	return x, nil
}

// launch creates a program's pod and returns once the program is running or has ended. It creates another if the pod
// was lost to another process, a node's end or an unreachable network.
func (e *Engine) launch(ctx context.Context, s runtime.Spec, in fits, uid int64, k kept) (x *program, err error) {
	for range 3 {
		x, err = e.launchOnce(ctx, s, in, uid, k)
		if !errors.Is(err, errDisplaced) && !errors.Is(err, errSilentNode) && !errors.Is(err, errUnreached) {
			break
		}
	}
	return x, err
}

func (e *Engine) launchOnce(ctx context.Context, s runtime.Spec, in fits, uid int64, k kept) (*program, error) {
	x, err := e.newProgram(ctx, s, in, k)
	if err != nil {
		return nil, err
	}
	secret, err := e.secret(s, k, x.name, x.token, in)
	if err == nil {
		err = e.patiently(ctx, &s, func() error { return e.make(ctx, s, secret, in, uid, k) })
	}
	if err != nil {
		x.end(lost(err.Error()))
		<-x.gone
		return nil, explain(err)
	}
	if err := x.begin(ctx); err != nil {
		e.remove(x.name, 0)
		x.end(lost(err.Error()))
		return nil, err
	}
	return x, nil
}

// make creates a program's objects. It may be repeated, since their names are the program's own.
func (e *Engine) make(ctx context.Context, s runtime.Spec, secret *core.Secret, in fits, uid int64, k kept) error {
	secrets, pods := e.c.Client.CoreV1().Secrets(e.c.Namespace), e.c.Client.CoreV1().Pods(e.c.Namespace)
	made, err := secrets.Create(ctx, secret, meta.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = secrets.Get(ctx, secret.Name, meta.GetOptions{})
	}
	if err != nil {
		return err
	}
	if s.Egress && len(s.Ports) > 0 {
		_, err = e.c.Client.NetworkingV1().NetworkPolicies(e.c.Namespace).Create(ctx, e.portsPolicy(s, made), meta.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	p := e.pod(s, made, in.image, uid)
	in.build(p, s)
	e.keep(p, k)
	if _, err = pods.Create(ctx, p, meta.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return e.takeClaim(ctx, k, p.Name)
}

// newProgram returns a program that receives the state of its pod, which is created next.
func (e *Engine) newProgram(ctx context.Context, s runtime.Spec, in fits, k kept) (x *program, err error) {
	x = &program{
		e: e, spec: s, name: podName(in.kind(), s.ID), claim: k.claim, keeper: k.keeper, reads: k.keeper && k.readOnly, token: rand.Text(), output: told(s), terminal: s.Terminal,
		leaves: make(chan struct{}), seen: make(chan struct{}, 1), ended: make(chan struct{}), gone: make(chan struct{}),
	}
	if x.led, err = e.lead(ctx, s); err != nil {
		return nil, err
	}
	x.listening, x.deafen = context.WithCancel(context.Background())
	e.mu.Lock()
	e.programs[x.name] = x
	e.mu.Unlock()
	e.share.enter(x)
	return x, nil
}

// explain rephrases known refusals of the cluster.
func explain(err error) error {
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota") {
		return fmt.Errorf("%w: the quota of the namespace is reached (%w)", runtime.ErrNoRoom, err)
	}
	return err
}

// answers reports whether the API server responds.
func (e *Engine) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), probePatience)
	defer cancel()
	_, err := e.c.Client.CoordinationV1().Leases(e.c.Namespace).Get(ctx, leaseName(e.c.Name), meta.GetOptions{})
	return err == nil
}

// removal limits the deletion of a program's objects.
const removal = 20 * time.Second

// remove deletes a program's objects. If the API server is unreachable, the next process deletes them.
func (e *Engine) remove(name string, grace int64) {
	ctx, cancel := context.WithTimeout(context.Background(), removal)
	defer cancel()
	if x := e.program(name); x != nil {
		x.removed.Store(true)
		if x.claim != "" {
			grace = max(grace, 1) // with 0 the cluster forgets the pod before it has ended, and another could write at the same time
		}
	}
	err := errors.Join(
		e.c.Client.CoreV1().Pods(e.c.Namespace).Delete(ctx, name, meta.DeleteOptions{GracePeriodSeconds: &grace}),
		e.c.Client.CoreV1().Secrets(e.c.Namespace).Delete(ctx, name, meta.DeleteOptions{}),
	)
	if err != nil && !apierrors.IsNotFound(err) {
		e.c.Log.Warn("objects of a program not removed", "program", name, "err", err)
	}
}

// podName returns a unique pod name.
func podName(kind, program string) string {
	return kind + "-" + dashed(program, 40) + "-" + strings.ToLower(rand.Text()[:8])
}

// dashed converts a name to the form of object names, cut to limit characters.
func dashed(name string, limit int) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name)
	return strings.Trim(clean[:min(len(clean), limit)], "-")
}

// label converts a name to a valid label value.
func label(name string) string {
	return strings.Trim(name[:min(len(name), 63)], "-_.")
}
