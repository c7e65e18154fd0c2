package kube

import (
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway/cluster/pod"
	"slipway/internal/build/bundle"
	"slipway/internal/program/runtime"
)

const (
	keySpec    = "spec.json"
	volumeApp  = "app"
	volumeTmp  = "tmp"
	volumeSpec = "spec"
	volumeRun  = "run"
	container  = "program"
	preparing  = "prepare"

	// runSize limits the folder of sockets, which the program can also write to.
	runSize = 16 << 20
	// entryMemory is the entry point's memory besides the program's.
	entryMemory = 24 << 20
	// maxTree caps a bundle in bytes, as when it is stored.
	maxTree = 4 << 30
	// maxSecret is slightly below the limit of a Secret, 1 MiB.
	maxSecret = 1<<20 - 16<<10
	// drainGrace is the cluster's grace period in seconds when it ends a pod, for example when draining a node.
	drainGrace = 60
	// drainNotice is the part of drainGrace after SIGTERM, unless the program was stopped before.
	drainNotice = 10
)

func (e *Engine) labels(s runtime.Spec) map[string]string {
	network := networkClosed
	if s.Egress {
		network = networkPublic
	}
	return map[string]string{
		labelManaged: managedBy, labelPart: component, labelEngine: e.c.Name, labelProcess: e.life, labelNetwork: network,
		labelSite: label(string(s.Site)), labelOwner: label(string(s.Owner)), labelProgram: label(s.ID),
	}
}

func fileKey(i int) string { return "file-" + strconv.Itoa(i) }

// temporary returns the paths of a program's temporary folders.
func temporary(s runtime.Spec) (paths []string) {
	for _, f := range s.Storage {
		if f.Temporary || s.Isolated {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// secret returns the Secret that describes a pod's program. The pod itself doesn't contain this, since more people can
// read pods.
func (e *Engine) secret(s runtime.Spec, k kept, name, token string, in fits) (*core.Secret, error) {
	d := pod.Description{
		Argv: s.Argv, Dir: path.Join(runtime.AppDir, s.Dir), Env: environment(s), Linger: drainGrace - drainNotice,
		Temporary: temporary(s), Token: token, Pids: s.Limits.Pids, MaxBytes: maxTree,
		Storage: k.folders, StorageLimit: s.Limits.Storage, ReadOnly: k.readOnly,
		Name: name, Ways: e.waysOf(s), Address: address(e.c.Address, e.c.Packs), CA: e.packs.ca,
	}
	if e.c.Canary != nil {
		d.Canary = address(e.c.Address, e.c.Canary)
	}
	if s.Shell != "" {
		d.Argv = []string{"/bin/sh", "-c", s.Shell}
	}
	if t := s.Terminal; t != nil {
		d.Terminal = &pod.Size{Columns: 80, Rows: 24}
		if t.Size != (runtime.Size{}) {
			d.Terminal = &pod.Size{Columns: t.Size.Columns, Rows: t.Size.Rows}
		}
	}
	until := time.Now().Add(packLife)
	add := func(at string, id bundle.ID, from, stage string) {
		d.Trees = append(d.Trees, pod.Tree{Path: at, Bundle: string(id), From: from, Query: e.packs.sign(id, until), Stage: stage})
	}
	if s.Bundle != "" {
		add("", s.Bundle, "", "")
	}
	for i, t := range s.Trees {
		add(t.Path, t.Bundle, t.From, staged(s, i))
	}
	data := map[string][]byte{}
	size := 0
	for i, f := range s.Files {
		d.Files = append(d.Files, f.Path)
		data[fileKey(i)] = f.Text
		size += len(f.Text)
	}
	describePHP(s, in.php, &d, data)
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	size += len(text)
	if size > maxSecret {
		return nil, fmt.Errorf("the environment variables and files of a program have %d KiB, at most %d KiB on Kubernetes", size>>10, maxSecret>>10)
	}
	data[keySpec] = text
	immutable := true
	return &core.Secret{
		ObjectMeta: meta.ObjectMeta{Name: name, Labels: e.labels(s), OwnerReferences: e.owner}, Immutable: &immutable, Data: data,
	}, nil
}

// environment returns a program's environment variables, as on a single machine.
func environment(s runtime.Spec) []string {
	bins := []string{path.Join(runtime.AppDir, s.Dir, "node_modules/.bin")}
	if s.Dir != "" {
		bins = append(bins, path.Join(runtime.AppDir, "node_modules/.bin"))
	}
	env := []string{"NODE_ENV=production", "HOME=/tmp", "PWD=" + path.Join(runtime.AppDir, s.Dir)}
	if s.Terminal != nil {
		env = append(env, "TERM=xterm-256color", "COLORTERM=truecolor")
	}
	env = append(env, runtime.NodeEnv(s)...)
	return append(env, fmt.Sprintf("PORT=%d", runtime.Port), "HOST=127.0.0.1", "HOSTNAME=127.0.0.1",
		"PATH="+strings.Join(append(bins, "/usr/local/bin", "/usr/bin", "/bin"), ":"))
}

// pod returns a program's pod, which complies with the Pod Security Standard "restricted". uid is the site's, from
// Users.
func (e *Engine) pod(s runtime.Spec, secret *core.Secret, image string, uid int64) *core.Pod {
	uid += e.c.UIDs
	yes, no, grace := true, false, int64(drainGrace)
	onlyOwner, everyRun := int32(0o440), core.PullIfNotPresent
	memory := s.Limits.Memory + entryMemory
	limits := core.ResourceList{core.ResourceMemory: quantity(memory)}
	if s.Limits.CPUs > 0 {
		limits[core.ResourceCPU] = *resource.NewMilliQuantity(int64(s.Limits.CPUs*1000), resource.DecimalSI)
	}
	requests := core.ResourceList{core.ResourceMemory: quantity(memory / 4), core.ResourceCPU: resource.MustParse("10m")}
	volumes := []core.Volume{
		scratch(volumeApp, maxTree+maxTree/4), scratch(volumeTmp, s.Limits.Disk),
		{Name: volumeSpec, VolumeSource: core.VolumeSource{Secret: &core.SecretVolumeSource{SecretName: secret.Name, DefaultMode: &onlyOwner}}},
	}
	described := core.VolumeMount{Name: volumeSpec, MountPath: pod.SpecFile, SubPath: keySpec, ReadOnly: true}
	tmp := core.VolumeMount{Name: volumeTmp, MountPath: "/tmp"}
	before := []core.VolumeMount{described, tmp, {Name: volumeApp, MountPath: runtime.AppDir}}
	mounts := []core.VolumeMount{described, tmp, {Name: volumeApp, MountPath: runtime.AppDir, ReadOnly: true}}
	if len(e.waysOf(s)) > 0 { // for sockets
		volumes = append(volumes, scratch(volumeRun, runSize))
		mounts = append(mounts, core.VolumeMount{Name: volumeRun, MountPath: "/run"})
	}
	for i, f := range s.Files {
		mounts = append(mounts, core.VolumeMount{Name: volumeSpec, MountPath: path.Join(runtime.AppDir, f.Path), SubPath: fileKey(i), ReadOnly: true})
	}
	mounts = append(mounts, phpMounts(s)...)
	treeVolumes, treeBefore, treeMounts := treeVolumes(s)
	volumes, before, mounts = append(volumes, treeVolumes...), append(before, treeBefore...), append(mounts, treeMounts...)
	for i, name := range temporary(s) {
		folder := "temporary-" + strconv.Itoa(i)
		volumes = append(volumes, scratch(folder, s.Limits.Disk))
		before = append(before, core.VolumeMount{Name: folder, MountPath: path.Join(pod.StageDir, strconv.Itoa(i))})
		mounts = append(mounts, core.VolumeMount{Name: folder, MountPath: path.Join(runtime.AppDir, name)})
	}
	confined := &core.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &core.Capabilities{Drop: []core.Capability{"ALL"}},
	}
	part := func(name string, mounts []core.VolumeMount, args ...string) core.Container {
		return core.Container{
			Name: name, Image: image, ImagePullPolicy: everyRun, Command: append([]string{pod.EntryFile}, args...),
			VolumeMounts: mounts, SecurityContext: confined,
			Resources:              core.ResourceRequirements{Limits: limits, Requests: requests},
			TerminationMessagePath: "/dev/termination-log",
		}
	}
	program := part(container, mounts, "run")
	program.Ports = []core.ContainerPort{{Name: "slipway", ContainerPort: pod.Port}}
	labels := e.labels(s)
	if s.Egress && len(s.Ports) > 0 {
		labels[labelPorts] = secret.Name
	}
	var names []core.HostAlias
	var kernel []core.Sysctl
	if own := e.ownNames(s); len(own) > 0 {
		names = []core.HostAlias{{IP: ownHost, Hostnames: own}}
		kernel = []core.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}} // to listen on port 443 within the pod
	}
	p := &core.Pod{
		ObjectMeta: meta.ObjectMeta{
			Name: secret.Name, Labels: labels,
			OwnerReferences: belongsTo(secret), // in case this process dies before removing the pod
			// The cluster's autoscaler may evict it: it is then replaced.
			Annotations: map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
		},
		Spec: core.PodSpec{
			RestartPolicy:                 core.RestartPolicyNever, // the engine's callers decide about restarts, since they count crashes
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			TerminationGracePeriodSeconds: &grace,
			SecurityContext: &core.PodSecurityContext{
				RunAsUser: &uid, RunAsGroup: &uid, FSGroup: &uid, RunAsNonRoot: &yes,
				SeccompProfile: &core.SeccompProfile{Type: core.SeccompProfileTypeRuntimeDefault},
				Sysctls:        kernel,
			},
			Tolerations:    tolerations(),
			HostAliases:    names,
			InitContainers: []core.Container{part(preparing, before, "prepare")},
			Containers:     []core.Container{program},
			Volumes:        volumes,
		},
	}
	p.Spec.TopologySpreadConstraints = spread(labels[labelSite])
	e.shunned.shun(p)
	return p
}

func quantity(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.BinarySI) }

// scratch returns an emptyDir volume of at most limit bytes; 0 means unlimited.
func scratch(name string, limit int64) core.Volume {
	v := core.Volume{Name: name, VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{}}}
	if limit > 0 {
		size := quantity(limit)
		v.EmptyDir.SizeLimit = &size
	}
	return v
}

// belongsTo makes an object owned by a program's Secret. kubectl drain refuses to evict pods without an owner that
// would replace them.
func belongsTo(secret *core.Secret) []meta.OwnerReference {
	yes := true
	return []meta.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID, Controller: &yes}}
}

// Namespace returns the namespace of programs, which only admits restricted pods.
func Namespace(name string) *core.Namespace {
	return &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{
		labelManaged:                                 managedBy,
		"pod-security.kubernetes.io/enforce":         "restricted",
		"pod-security.kubernetes.io/enforce-version": "latest",
	}}}
}

// notPublic lists the addresses that programs can't connect to: private networks, the cluster and its machines, and
// clouds' metadata services.
var notPublic = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
}

// Policies returns the namespace's network policies. control lists the control plane's addresses as seen by pods, packs
// is the port for files, and own lists public ranges that belong to the cluster.
func Policies(control []string, packs int, own []string) []*networking.NetworkPolicy {
	var peers []networking.NetworkPolicyPeer
	for _, c := range control {
		peers = append(peers, networking.NetworkPolicyPeer{IPBlock: &networking.IPBlock{CIDR: c}})
	}
	return PoliciesOf(peers, packs, own)
}

// PoliciesOf is [Policies] for a control plane running in pods, as in the chart.
func PoliciesOf(peers []networking.NetworkPolicyPeer, packs int, own []string) []*networking.NetworkPolicy {
	tcp, udp := core.ProtocolTCP, core.ProtocolUDP
	programs := map[string]string{labelManaged: managedBy, labelPart: component}
	open := map[string]string{labelManaged: managedBy, labelPart: component, labelNetwork: networkPublic}
	return []*networking.NetworkPolicy{
		{
			ObjectMeta: meta.ObjectMeta{Name: "slipway-closed", Labels: map[string]string{labelManaged: managedBy}},
			Spec: networking.NetworkPolicySpec{
				PodSelector: meta.LabelSelector{MatchLabels: programs},
				PolicyTypes: []networking.PolicyType{networking.PolicyTypeIngress, networking.PolicyTypeEgress},
				Ingress:     []networking.NetworkPolicyIngressRule{{From: peers, Ports: []networking.NetworkPolicyPort{port(&tcp, pod.Port)}}},
				Egress:      []networking.NetworkPolicyEgressRule{{To: peers, Ports: []networking.NetworkPolicyPort{port(&tcp, packs)}}},
			},
		},
		{
			ObjectMeta: meta.ObjectMeta{Name: "slipway-public", Labels: map[string]string{labelManaged: managedBy}},
			Spec: networking.NetworkPolicySpec{
				PodSelector: meta.LabelSelector{MatchLabels: open},
				PolicyTypes: []networking.PolicyType{networking.PolicyTypeEgress},
				Egress: []networking.NetworkPolicyEgressRule{
					{To: public(own), Ports: []networking.NetworkPolicyPort{port(&tcp, 80), port(&tcp, 443)}},
					{
						To: []networking.NetworkPolicyPeer{{
							NamespaceSelector: &meta.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "kube-system"}},
							PodSelector:       &meta.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}},
						}},
						Ports: []networking.NetworkPolicyPort{port(&udp, 53), port(&tcp, 53)},
					},
				},
			},
		},
	}
}

func port(protocol *core.Protocol, n int) networking.NetworkPolicyPort {
	at := intstr.FromInt(n)
	return networking.NetworkPolicyPort{Protocol: protocol, Port: &at}
}

// public returns the addresses that programs with egress can connect to.
func public(own []string) []networking.NetworkPolicyPeer {
	except := append(append([]string{}, notPublic...), own...)
	return []networking.NetworkPolicyPeer{{IPBlock: &networking.IPBlock{CIDR: "0.0.0.0/0", Except: except}}}
}

// portsPolicy opens a program's additional ports to public addresses. It is deleted with the program.
func (e *Engine) portsPolicy(s runtime.Spec, secret *core.Secret) *networking.NetworkPolicy {
	tcp := core.ProtocolTCP
	var ports []networking.NetworkPolicyPort
	for _, n := range s.Ports {
		ports = append(ports, port(&tcp, n))
	}
	rule := networking.NetworkPolicyEgressRule{To: public(e.c.Own), Ports: ports}
	return &networking.NetworkPolicy{
		ObjectMeta: meta.ObjectMeta{Name: secret.Name, Labels: e.labels(s), OwnerReferences: belongsTo(secret)},
		Spec: networking.NetworkPolicySpec{
			PodSelector: meta.LabelSelector{MatchLabels: map[string]string{labelPorts: secret.Name}},
			PolicyTypes: []networking.PolicyType{networking.PolicyTypeEgress}, Egress: []networking.NetworkPolicyEgressRule{rule},
		},
	}
}
