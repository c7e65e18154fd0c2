package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway/cluster/pod"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

// Storage says what kind of volumes hold what programs keep.
//
// Each site has a claim of its own, and each of its previews: its size is the site's limit, its deletion the cluster's
// own, and no preview fills the disk of what is live. A claim belongs to nothing: it stays until it is forgotten.
type Storage struct {
	Class string // Optional: empty is the cluster's default class.
	// Access is ReadWriteOnce or ReadWriteMany. Optional: empty is ReadWriteOnce, with which the programs of a site are
	// kept on one node. ReadWriteOncePod is refused: a switch starts the new program before it ends the old one.
	Access core.PersistentVolumeAccessMode
	Size   int64 // bytes of the claims of programs without a limit. Optional: 0 is 1 GiB.
}

const defaultClaim = 1 << 30

func (s *Storage) check() error {
	s.Access, s.Size = cmp.Or(s.Access, core.ReadWriteOnce), cmp.Or(s.Size, defaultClaim)
	if s.Access != core.ReadWriteOnce && s.Access != core.ReadWriteMany {
		return fmt.Errorf("storage with access mode %s can't be used: it must be ReadWriteOnce or ReadWriteMany", s.Access)
	}
	return nil
}

const (
	storing       = "storage" // the component of claims, and the volume of a pod
	labelClaim    = "slipway.dev/claim"
	markSite      = "slipway.dev/site" // annotations, where labels could be too short
	markPreview   = "slipway.dev/preview"
	markWriter    = "slipway.dev/writer"       // the engine that took it last
	gateWriter    = "slipway.dev/only-writer"  // keeps a pod from being placed
	markStored    = "slipway.dev/stored-bytes" // as last counted
	claimPatience = 2 * time.Minute            // for a claim that is being deleted, and one that is being bound
	// writerPatience is how long a pod that another process left may take to end.
	writerPatience = time.Minute
)

// claimName names the claim of a site or of its preview: readable, and no other's.
func claimName(site id.Site, preview string) string {
	sum := sha256.Sum256([]byte(string(site) + "/" + preview))
	return dashed("storage-"+string(site), 45) + "-" + hex.EncodeToString(sum[:6])
}

// keeps returns the folders of a program that outlive it.
func keeps(s runtime.Spec) (folders []pod.Folder, err error) {
	if s.Isolated {
		return nil, nil
	}
	for _, f := range s.Storage {
		if f.Temporary {
			continue
		}
		at, name, err := f.Clean()
		if err != nil {
			return nil, err
		}
		folders = append(folders, pod.Folder{Path: at, Name: runtime.StorageName(name)})
	}
	// The outer before the inner: what the outer covers is no folder to mount the inner at.
	slices.SortStableFunc(folders, func(a, b pod.Folder) int {
		return strings.Count(a.Path, "/") - strings.Count(b.Path, "/")
	})
	if len(folders) > 0 && isFPM(s) {
		folders = append(folders, pod.Folder{Path: sessionsDir, Name: runtime.StorageName("@sessions")})
	}
	return folders, nil
}

// sessionsDir is where PHP keeps sessions that outlive sleep and deployments: those of a site that stores something anyway. Others
// keep them with the pod: nobody pays for a volume of sessions alone.
const sessionsDir = "/var/lib/php/sessions"

// kept is what a program keeps.
type kept struct {
	claim    string // empty: nothing
	folders  []pod.Folder
	readOnly bool
	keeper   bool // of the whole claim
}

// prepareStorage makes sure that a program's claim is there.
func (e *Engine) prepareStorage(ctx context.Context, s runtime.Spec) (k kept, err error) {
	if k.folders, err = keeps(s); err != nil || len(k.folders) == 0 {
		return k, err
	}
	if k.claim, err = e.claim(ctx, s); err != nil {
		return k, fmt.Errorf("prepare storage: %w", err)
	}
	return k, nil
}

// refusedToWrite reports whether a program was not started because its storage is so full that it may only read it.
func (x *program) refusedToWrite() bool {
	select {
	case <-x.gone:
		return x.exit.Reason == pod.StorageFull
	default:
		return false
	}
}

// storedOf reads how much was stored when a pod ended.
func storedOf(p *core.Pod) *int64 {
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			var end pod.End
			if json.Unmarshal([]byte(t.Message), &end) == nil {
				return end.Stored
			}
		}
	}
	return nil
}

// claim returns the claim of a program's storage, making or expanding it where that is needed.
func (e *Engine) claim(ctx context.Context, s runtime.Spec) (string, error) {
	name, claims := claimName(s.Site, s.Preview), e.c.Client.CoreV1().PersistentVolumeClaims(e.c.Namespace)
	want := *resource.NewQuantity(cmp.Or(s.Limits.Storage, e.c.Storage.Size), resource.BinarySI)
	for late := time.Now().Add(claimPatience); ; {
		c, err := claims.Get(ctx, name, meta.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err := claims.Create(ctx, e.newClaim(s, name, want), meta.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				continue
			}
			return name, err
		case err != nil:
			return "", err
		case c.Annotations[markSite] != string(s.Site) || c.Annotations[markPreview] != s.Preview:
			return "", fmt.Errorf("the claim %s is not of this site", name)
		case c.DeletionTimestamp == nil:
			if c.Annotations[markStored] != "" { // what starts now changes it
				delete(c.Annotations, markStored)
				if c, err = claims.Update(ctx, c, meta.UpdateOptions{}); apierrors.IsConflict(err) {
					continue
				} else if err != nil {
					return "", err
				}
			}
			if want.Cmp(c.Spec.Resources.Requests[core.ResourceStorage]) <= 0 {
				return name, nil
			}
			c.Spec.Resources.Requests[core.ResourceStorage] = want
			if _, err := claims.Update(ctx, c, meta.UpdateOptions{}); apierrors.IsConflict(err) {
				continue
			} else if err != nil { // its class doesn't allow it, or it isn't bound yet: it has what it has
				e.c.Log.Debug("claim not expanded", "claim", name, "err", err)
			}
			return name, nil
		case time.Now().After(late):
			return "", errors.New("the storage of this site is being deleted")
		}
		if err := pause(ctx); err != nil {
			return "", err
		}
	}
}

func (e *Engine) newClaim(s runtime.Spec, name string, size resource.Quantity) *core.PersistentVolumeClaim {
	c := &core.PersistentVolumeClaim{
		ObjectMeta: meta.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				labelManaged: managedBy, labelPart: storing, labelSite: label(string(s.Site)), labelOwner: label(string(s.Owner)),
			},
			Annotations: map[string]string{markSite: string(s.Site), markPreview: s.Preview},
		},
		Spec: core.PersistentVolumeClaimSpec{
			AccessModes: []core.PersistentVolumeAccessMode{e.c.Storage.Access},
			Resources:   core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: size}},
		},
	}
	if e.c.Storage.Class != "" {
		c.Spec.StorageClassName = &e.c.Storage.Class
	}
	return c
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(10 * retry):
		return nil
	}
}

// errTaken is the error of a start that another process of the installation has overtaken.
var errTaken = errors.New("another node has taken over this site")

// errDisplaced is the error of a start whose pod is gone although the claim is this process's: it is to be made again.
var errDisplaced = errors.New("another node has ended the program while it started")

// takeClaim lets a new pod write to a claim, and nobody else: until then a gate keeps it from being placed. Of two processes that take a
// claim in the same instant at least one sees the other's pod, since each looks after it has made its own; who wrote its name last
// goes on.
func (e *Engine) takeClaim(ctx context.Context, k kept, name string) error {
	if k.claim == "" {
		return nil
	}
	claims := e.c.Client.CoreV1().PersistentVolumeClaims(e.c.Namespace)
	for {
		c, err := claims.Get(ctx, k.claim, meta.GetOptions{})
		if err != nil {
			return err
		}
		if c.Annotations[markWriter] == e.c.Name {
			break
		}
		c.Annotations[markWriter] = e.c.Name
		if _, err = claims.Update(ctx, c, meta.UpdateOptions{}); err == nil {
			break
		} else if !apierrors.IsConflict(err) {
			return err
		}
	}
	if err := e.alone(ctx, k.claim); err != nil {
		return err
	}
	pods := e.c.Client.CoreV1().Pods(e.c.Namespace)
	_, err := pods.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), meta.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	// Whoever ended it did not know yet that this process would take the claim.
	if c, err := claims.Get(ctx, k.claim, meta.GetOptions{}); err != nil || c.Annotations[markWriter] != e.c.Name {
		return errTaken
	}
	return errDisplaced
}

// alone ends the pods that another process left with a claim, and returns when the cluster has seen their end. Pods of a node that
// doesn't answer are not seen to end.
func (e *Engine) alone(ctx context.Context, claim string) error {
	pods := e.c.Client.CoreV1().Pods(e.c.Namespace)
	for late := time.Now().Add(writerPatience); ; {
		list, err := pods.List(ctx, meta.ListOptions{LabelSelector: labelClaim + "=" + claim})
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(list.Items, func(p core.Pod) bool {
			ours := p.Labels[labelEngine] == e.c.Name && e.program(p.Name) != nil
			return p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed || ours && p.DeletionTimestamp == nil
		})
		if len(others) == 0 {
			return nil
		}
		if c, err := e.c.Client.CoreV1().PersistentVolumeClaims(e.c.Namespace).Get(ctx, claim, meta.GetOptions{}); err != nil {
			return err
		} else if c.Annotations[markWriter] != e.c.Name {
			return errTaken
		}
		var names []string
		for _, p := range others {
			names = append(names, p.Name+" on "+cmp.Or(p.Spec.NodeName, "no node"))
			if p.DeletionTimestamp != nil {
				continue
			}
			soon := int64(1) // 0 would not wait for its end
			err := pods.Delete(ctx, p.Name, meta.DeleteOptions{GracePeriodSeconds: &soon, Preconditions: &meta.Preconditions{UID: &p.UID}})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
		if time.Now().After(late) {
			return fmt.Errorf("another program may still write to the storage of this site: %s", strings.Join(names, ", "))
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// keep gives a pod the folders of a claim. Its first step sees the whole of it, and makes what is not there.
func (e *Engine) keep(p *core.Pod, k kept) {
	if k.claim == "" {
		return
	}
	p.Labels[labelClaim] = k.claim
	p.Spec.SchedulingGates = []core.PodSchedulingGate{{Name: gateWriter}}
	p.Spec.Volumes = append(p.Spec.Volumes, core.Volume{Name: storing, VolumeSource: core.VolumeSource{
		PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: k.claim},
	}})
	// Whoever has many files doesn't wait for each to be given to the site's user at each start.
	onMismatch := core.FSGroupChangeOnRootMismatch
	p.Spec.SecurityContext.FSGroupChangePolicy = &onMismatch
	first := &p.Spec.InitContainers[0]
	first.VolumeMounts = append(first.VolumeMounts, core.VolumeMount{Name: storing, MountPath: pod.StorageDir})
	for _, f := range k.folders {
		program := &p.Spec.Containers[0]
		program.VolumeMounts = append(program.VolumeMounts, core.VolumeMount{
			Name: storing, MountPath: f.At(runtime.AppDir), SubPath: f.Name, ReadOnly: k.readOnly,
		})
	}
	if e.c.Storage.Access == core.ReadWriteOnce {
		// A volume of one node: the new program of a switch starts where the old one is. It is one of those that it wants
		// to be near, which is how the first one is placed at all.
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &core.Affinity{}
		}
		p.Spec.Affinity.PodAffinity = &core.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []core.PodAffinityTerm{{
			LabelSelector: &meta.LabelSelector{MatchLabels: map[string]string{labelClaim: k.claim}}, TopologyKey: core.LabelHostname,
		}}}
	}
}

// claims lists the claims of a site, or all of them.
func (e *Engine) claims(ctx context.Context, site id.Site) ([]core.PersistentVolumeClaim, error) {
	selector := labelManaged + "=" + managedBy + "," + labelPart + "=" + storing
	if site != "" {
		selector += "," + labelSite + "=" + label(string(site))
	}
	list, err := e.c.Client.CoreV1().PersistentVolumeClaims(e.c.Namespace).List(ctx, meta.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list storage: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(c core.PersistentVolumeClaim) bool {
		return c.DeletionTimestamp != nil || site != "" && c.Annotations[markSite] != string(site)
	}), nil
}

// StorageSites lists the sites that have storage.
func (e *Engine) StorageSites() (sites []id.Site, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), removal)
	defer cancel()
	all, err := e.claims(ctx, "")
	for _, c := range all {
		sites = append(sites, id.Site(c.Annotations[markSite]))
	}
	slices.Sort(sites)
	return slices.Compact(sites), err
}

// PreviewStores lists the previews that have storage, by their sites.
func (e *Engine) PreviewStores() (map[id.Site][]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), removal)
	defer cancel()
	all, err := e.claims(ctx, "")
	list := map[id.Site][]string{}
	for _, c := range all {
		if site, preview := id.Site(c.Annotations[markSite]), c.Annotations[markPreview]; preview != "" {
			list[site] = append(list[site], preview)
		}
	}
	return list, err
}

// ForgetStorage deletes a site's storage, that of its previews included. The cluster keeps what a pod still uses
// until that has ended.
func (e *Engine) ForgetStorage(site id.Site) error {
	if m := e.mirrors.has(site); m != nil {
		e.leave(site, m, 0)
	}
	return e.forgetClaims(site, func(core.PersistentVolumeClaim) bool { return true })
}

// ForgetPreview deletes the storage of a preview.
func (e *Engine) ForgetPreview(site id.Site, preview string) error {
	return e.forgetClaims(site, func(c core.PersistentVolumeClaim) bool { return preview != "" && c.Annotations[markPreview] == preview })
}

func (e *Engine) forgetClaims(site id.Site, which func(core.PersistentVolumeClaim) bool) error {
	if site == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), removal)
	defer cancel()
	all, err := e.claims(ctx, site)
	for _, c := range all {
		if !which(c) {
			continue
		}
		failed := e.c.Client.CoreV1().PersistentVolumeClaims(e.c.Namespace).Delete(ctx, c.Name, meta.DeleteOptions{
			Preconditions: &meta.Preconditions{UID: &c.UID},
		})
		if failed != nil && !apierrors.IsNotFound(failed) {
			err = errors.Join(err, fmt.Errorf("delete storage: %w", failed))
		}
	}
	return err
}

// StorageShared reports that what programs store is the cluster's, not this node's.
func (e *Engine) StorageShared() bool { return true }

// StorageFault returns nil: whether a volume is there is known when a pod wants it.
func (e *Engine) StorageFault() error { return nil }

// noteStored keeps how much a claim holds, for StorageSize while nothing runs. Where that fails it is counted when somebody asks.
func (e *Engine) noteStored(claim string, bytes int64) {
	ctx, cancel := context.WithTimeout(context.Background(), dialPatience)
	defer cancel()
	claims := e.c.Client.CoreV1().PersistentVolumeClaims(e.c.Namespace)
	for range 3 {
		c, err := claims.Get(ctx, claim, meta.GetOptions{})
		if err == nil {
			c.Annotations[markStored] = strconv.FormatInt(bytes, 10)
			_, err = claims.Update(ctx, c, meta.UpdateOptions{})
		}
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil && !apierrors.IsNotFound(err) {
			e.c.Log.Warn("what is stored is not noted", "claim", claim, "err", err)
		}
		return
	}
}

// StorageSize returns the bytes of a site's storage, that of its previews included.
func (e *Engine) StorageSize(ctx context.Context, site id.Site) (n int64, err error) {
	all, err := e.claims(ctx, site)
	for _, c := range all {
		one, failed := e.stored(ctx, c)
		n, err = n+one, errors.Join(err, failed)
	}
	return n, err
}

// stored returns how much a claim holds: as a program counts that writes to it, as was counted when the last one ended, or as a
// pod counts that is made for this.
func (e *Engine) stored(ctx context.Context, c core.PersistentVolumeClaim) (n int64, err error) {
	e.mu.Lock()
	var writers []*program
	for _, x := range e.programs {
		if x.claim == c.Name && !x.keeper {
			writers = append(writers, x)
		}
	}
	e.mu.Unlock()
	for _, x := range writers {
		if u, err := x.report(ctx, pod.Count); err == nil {
			return u.Stored, nil
		}
	}
	if n, err := strconv.ParseInt(c.Annotations[markStored], 10, 64); err == nil {
		return n, nil
	}
	return e.count(ctx, c)
}

// count starts a pod that counts what a claim holds.
func (e *Engine) count(ctx context.Context, c core.PersistentVolumeClaim) (int64, error) {
	site := id.Site(c.Annotations[markSite])
	done, _, err := e.holds.enter(ctx, site)
	if err != nil {
		return 0, err
	}
	defer done()
	uid, err := e.c.Users.UID(ctx, site)
	if err != nil {
		return 0, err
	}
	s := runtime.Spec{ID: "count-" + string(site), Site: site, Owner: id.Owner(c.Labels[labelOwner]), Limits: runtime.Limits{Memory: 64 << 20, Disk: 1 << 20}}
	k := kept{claim: c.Name}
	x, err := e.newProgram(ctx, s, fits{}, k)
	if err != nil {
		return 0, err
	}
	p := e.pod(s, &core.Secret{ObjectMeta: meta.ObjectMeta{Name: x.name}}, e.c.Images[0].Name, int64(uid))
	e.keep(p, k)
	counts := &p.Spec.Containers[0]
	counts.Command = []string{pod.EntryFile, "count"}
	counts.VolumeMounts = []core.VolumeMount{{Name: storing, MountPath: pod.StorageDir, ReadOnly: true}}
	p.Spec.InitContainers, p.Spec.SchedulingGates, p.OwnerReferences = nil, nil, nil // it only reads
	p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v core.Volume) bool { return v.Name != storing })
	if _, err := e.c.Client.CoreV1().Pods(e.c.Namespace).Create(ctx, p, meta.CreateOptions{}); err != nil {
		x.end(lost(err.Error()))
		return 0, fmt.Errorf("count storage: %w", explain(err))
	}
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-x.gone:
			tick.Stop()
			if x.stored == nil {
				return 0, fmt.Errorf("count storage: %s", x.exit.Reason)
			}
			return *x.stored, nil
		case <-x.seen:
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			e.remove(x.name, 1)
			x.end(lost("given up"))
			return 0, context.Cause(ctx)
		}
		if last := x.pod(); last != nil {
			if why := stuck(last); why != "" {
				e.remove(x.name, 1)
				x.end(lost(why))
			}
		}
	}
}
