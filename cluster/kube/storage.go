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

// Storage describes the volumes of programs' storage.
//
// Each site and each preview has its own claim, so that a preview can't fill the live site's disk. The claim's size is
// the site's limit. A claim has no owner and exists until it is forgotten.
type Storage struct {
	Class string // Optional: empty means the cluster's default class.
	// Access is ReadWriteOnce or ReadWriteMany. Optional: empty means ReadWriteOnce, with which a site's programs run
	// on one node. ReadWriteOncePod is refused, since a switch starts the new program before it ends the old one.
	Access core.PersistentVolumeAccessMode
	Size   int64 // bytes of claims for programs without a limit. Optional: 0 means 1 GiB.
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
	storing       = "storage" // component of claims, and a pod's volume
	labelClaim    = "slipway.dev/claim"
	markSite      = "slipway.dev/site" // annotations, since labels may be too short
	markPreview   = "slipway.dev/preview"
	markWriter    = "slipway.dev/writer"       // engine that took it last
	gateWriter    = "slipway.dev/only-writer"  // scheduling gate of a pod
	markStored    = "slipway.dev/stored-bytes" // last count
	claimPatience = 2 * time.Minute            // for a claim being deleted or bound
	// writerPatience limits the end of a pod left by another process.
	writerPatience = time.Minute
)

// claimName returns a readable, unique name of a site's or preview's claim.
func claimName(site id.Site, preview string) string {
	sum := sha256.Sum256([]byte(string(site) + "/" + preview))
	return dashed("storage-"+string(site), 45) + "-" + hex.EncodeToString(sum[:6])
}

// keeps returns a program's folders that outlive it.
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
	// Outer folders first, since an inner one can't be mounted before.
	slices.SortStableFunc(folders, func(a, b pod.Folder) int {
		return strings.Count(a.Path, "/") - strings.Count(b.Path, "/")
	})
	if len(folders) > 0 && isFPM(s) {
		folders = append(folders, pod.Folder{Path: sessionsDir, Name: runtime.StorageName("@sessions")})
	}
	return folders, nil
}

// sessionsDir stores PHP sessions that survive sleep and deployments, for sites that have storage anyway. Other sites'
// sessions are lost with the pod, to save the cost of a volume.
const sessionsDir = "/var/lib/php/sessions"

// kept describes a program's storage.
type kept struct {
	claim    string // empty: none
	folders  []pod.Folder
	readOnly bool
	keeper   bool // of the whole claim
}

// prepareStorage ensures that a program's claim exists.
func (e *Engine) prepareStorage(ctx context.Context, s runtime.Spec) (k kept, err error) {
	if k.folders, err = keeps(s); err != nil || len(k.folders) == 0 {
		return k, err
	}
	if k.claim, err = e.claim(ctx, s); err != nil {
		return k, fmt.Errorf("prepare storage: %w", err)
	}
	return k, nil
}

// refusedToWrite reports whether a program wasn't started because its storage is full and must be read-only.
func (x *program) refusedToWrite() bool {
	select {
	case <-x.gone:
		return x.exit.Reason == pod.StorageFull
	default:
		return false
	}
}

// storedOf returns the stored bytes reported at a pod's end.
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

// claim returns the claim of a program's storage, and creates or expands it if necessary.
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
			if c.Annotations[markStored] != "" { // the program that starts now changes it
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
			} else if err != nil { // unsupported by its class, or not bound yet: keep the current size
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

// errTaken means that another process of the installation took over the site during the start.
var errTaken = errors.New("another node has taken over this site")

// errDisplaced means that the pod was deleted although this process holds the claim. It must be created again.
var errDisplaced = errors.New("another node has ended the program while it started")

// takeClaim makes a new pod the claim's only writer; until then a gate keeps it from being scheduled. If two processes
// take a claim simultaneously, at least one sees the other's pod, since each checks after creating its own. The process
// that wrote its name last continues.
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
	// The process that ended it didn't know yet that this process would take the claim.
	if c, err := claims.Get(ctx, k.claim, meta.GetOptions{}); err != nil || c.Annotations[markWriter] != e.c.Name {
		return errTaken
	}
	return errDisplaced
}

// alone ends the pods of other processes with a claim, and returns once the cluster confirms their end. It can't
// confirm the end of pods on an unresponsive node.
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
			soon := int64(1) // 0 wouldn't wait for its end
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

// keep adds a claim's folders to a pod. The first step mounts the whole claim and creates missing folders.
func (e *Engine) keep(p *core.Pod, k kept) {
	if k.claim == "" {
		return
	}
	p.Labels[labelClaim] = k.claim
	p.Spec.SchedulingGates = []core.PodSchedulingGate{{Name: gateWriter}}
	p.Spec.Volumes = append(p.Spec.Volumes, core.Volume{Name: storing, VolumeSource: core.VolumeSource{
		PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: k.claim},
	}})
	// Don't change the owner of many files at each start.
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
		// The volume is on one node, so the new program of a switch must start on the old one's node. The pod matches
		// its own affinity, which allows the first one to be scheduled.
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &core.Affinity{}
		}
		p.Spec.Affinity.PodAffinity = &core.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []core.PodAffinityTerm{{
			LabelSelector: &meta.LabelSelector{MatchLabels: map[string]string{labelClaim: k.claim}}, TopologyKey: core.LabelHostname,
		}}}
	}
}

// claims lists the claims of a site, or of all sites if site is empty.
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

// StorageSites lists the sites with storage.
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

// PreviewStores lists the previews with storage by site.
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

// ForgetStorage deletes a site's storage, including its previews'. The cluster keeps volumes used by pods until these
// have ended.
func (e *Engine) ForgetStorage(site id.Site) error {
	if m := e.mirrors.has(site); m != nil {
		e.leave(site, m, 0)
	}
	return e.forgetClaims(site, func(core.PersistentVolumeClaim) bool { return true })
}

// ForgetPreview deletes a preview's storage.
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

// StorageShared reports that storage belongs to the cluster rather than to this node.
func (e *Engine) StorageShared() bool { return true }

// StorageFault returns nil, since a volume's faults only appear when a pod uses it.
func (e *Engine) StorageFault() error { return nil }

// noteStored records a claim's stored bytes for StorageSize. If that fails, they are counted on demand.
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
			e.c.Log.Warn("stored bytes not recorded", "claim", claim, "err", err)
		}
		return
	}
}

// StorageSize returns the bytes of a site's storage, including its previews'.
func (e *Engine) StorageSize(ctx context.Context, site id.Site) (n int64, err error) {
	all, err := e.claims(ctx, site)
	for _, c := range all {
		one, failed := e.stored(ctx, c)
		n, err = n+one, errors.Join(err, failed)
	}
	return n, err
}

// stored returns a claim's stored bytes: from a program that writes to it, from the count at the last program's end, or
// from a pod that counts them now.
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

// count starts a pod that counts a claim's stored bytes.
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
