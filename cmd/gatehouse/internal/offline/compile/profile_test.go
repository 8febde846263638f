package compile

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// someNamespaces are namespaces that the profiles of the tests select.
const someNamespaces = `apiVersion: v1
kind: Namespace
metadata: {name: plain, labels: {logs: shipped, mesh: enabled, telemetry: collected, secrets: managed}}
---
apiVersion: v1
kind: Namespace
metadata: {name: preset, labels: {mesh: preset, team: a}}
---
apiVersion: v1
kind: Namespace
metadata:
  name: asking
  labels: {logs: shipped, mesh: enabled, telemetry: collected, secrets: managed, team: a}
  annotations:
    sidecar.gatehouse.dev/inject: "true"
    log-shipper.sidecar.gatehouse.dev/memory: 96Mi
    p0.sidecar.gatehouse.dev/level: warn
    p1.sidecar.gatehouse.dev/number: "7"
---
apiVersion: v1
kind: Namespace
metadata: {name: declining, labels: {logs: shipped, mesh: enabled}, annotations: {sidecar.gatehouse.dev/inject: "-log-shipper,-p0,-p1"}}
`

// injection is a configuration of profiles, and what they were compiled to.
type injection struct {
	set    *sidecar.Set
	native *mutation.Set
	out    *Output
	// readsOwn is true if a profile reads what it changes. reversed are the policies with names in the other order, nil if that matters.
	readsOwn bool
	reversed *mutation.Set
}

// newInjection compiles documents, and nil if a profile is not valid.
func newInjection(t testing.TB, texts map[string][]byte, reversed bool) *injection {
	t.Helper()
	all := maps.Clone(texts)
	all["namespaces.yaml"] = []byte(someNamespaces)
	c, found := config.InspectPaths(nil, all)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	set, err := sidecar.Compile(c.Sidecar)
	if err != nil {
		return nil
	}
	i := &injection{set: set}
	if i.out, err = Compile(c, Options{Kubernetes: "1.36", Now: now()}); err != nil {
		t.Fatal(err)
	}
	i.readsOwn = slices.ContainsFunc(i.out.Items, func(item *Item) bool { return slices.Contains(item.Reasons, readsOwn) })
	spec := i.out.Mutation()
	spec.Objects = c.Policy.Objects
	if i.native, err = mutation.Compile(spec); err != nil {
		t.Fatal(err)
	}
	if reversed && len(spec.Policies) > 1 && !slices.ContainsFunc(i.out.Items, func(item *Item) bool { return slices.Contains(item.Reasons, sameSpot) }) {
		for k := range spec.Policies {
			before := fmt.Sprintf("%d-", len(spec.Policies)-k)
			spec.Policies[k].Name, spec.Bindings[k].Name, spec.Bindings[k].Spec.PolicyName = before+spec.Policies[k].Name, before+spec.Bindings[k].Name, before+spec.Bindings[k].Spec.PolicyName
		}
		spec.Previous = i.native
		if i.reversed, err = mutation.Compile(spec); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

// podRequest returns the request that creates a pod, as the API server sends it to webhooks.
func podRequest(namespace string, pod *corev1.Pod) admission.Request {
	defaulted := pod.DeepCopy()
	defaulted.TypeMeta, defaulted.Namespace = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, namespace
	defaults.Default(defaulted)
	text, _ := json.Marshal(defaulted) //nolint:errchkjson // it was read
	in := sidecar.ForPod(namespace, text)
	in.Request.UID, in.Request.RequestKind, in.Request.RequestResource = "u", &in.Request.Kind, &in.Request.Resource
	return in.Request
}

// read returns a pod as it is once the API server has read it.
func read(t testing.TB, text []byte) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	delete(pod.Annotations, v1alpha1.StatusAnnotation)
	if len(pod.Annotations) == 0 {
		pod.Annotations = nil
	}
	defaults.Default(&pod)
	return &pod
}

// results returns the pod that Gatehouse makes and the one of the compiled policies. Nil is a pod that is refused, for a reason.
func (i *injection) results(t testing.TB, req admission.Request) (ours, native *corev1.Pod, why, nativeWhy string) {
	t.Helper()
	d := i.set.Decide(context.Background(), sidecar.Input{Request: req, Apply: true})
	switch {
	case d.Err != nil:
		why = d.Err.Error()
	case len(d.Refusals) > 0:
		why = d.Refusals.Error()
	case d.Patched != nil:
		ours = read(t, d.Patched)
	default:
		ours = read(t, req.Object.Raw)
	}
	m := i.native.Decide(context.Background(), mutation.Input{Request: req})
	switch {
	case m.Err != nil:
		nativeWhy = m.Err.Error()
	case m.Refusal != nil:
		nativeWhy = m.Refusal.Message
	case m.Object != nil:
		native = read(t, m.Object)
	default:
		native = read(t, req.Object.Raw)
	}
	return ours, native, why, nativeWhy
}

// sorted returns a pod whose lists of which the order means nothing are sorted.
func sorted(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	slices.SortFunc(pod.Spec.Volumes, func(a, b corev1.Volume) int { return cmp.Compare(a.Name, b.Name) })
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for k := range list {
			slices.SortFunc(list[k].Env, func(a, b corev1.EnvVar) int { return cmp.Compare(a.Name, b.Name) })
			slices.SortFunc(list[k].VolumeMounts, func(a, b corev1.VolumeMount) int { return cmp.Compare(a.MountPath, b.MountPath) })
		}
	}
	return pod
}

// check compares both for a pod, and holds that neither the policies nor Gatehouse add anything to what the policies have made. It reports
// whether the pod was changed, and whether it was refused.
func (i *injection) check(t testing.TB, namespace string, pod *corev1.Pod) (changed, refused bool) {
	t.Helper()
	req := podRequest(namespace, pod)
	ours, native, why, nativeWhy := i.results(t, req)
	if strings.Contains(why, "both requests") && equality.Semantic.DeepEqual(native, read(t, req.Object.Raw)) {
		return false, true // no selector matches
	}
	if !equality.Semantic.DeepEqual(ours, native) {
		var profiles []string
		for k := range i.out.Documents {
			if d := i.out.Documents[k]; d.MutatingPolicy != nil {
				text, _ := yaml.Marshal(d.MutatingPolicy.Spec)
				profiles = append(profiles, string(text))
			}
		}
		a, _ := json.Marshal(ours)   //nolint:errchkjson // it was read
		b, _ := json.Marshal(native) //nolint:errchkjson // it was read
		t.Fatalf("namespace %s, pod %s\n  ours %s %s\nnative %s %s\n%s", namespace, req.Object.Raw, a, why, b, nativeWhy, strings.Join(profiles, "\n"))
	}
	if i.reversed != nil {
		m := i.reversed.Decide(context.Background(), mutation.Input{Request: req})
		text := req.Object.Raw
		if m.Object != nil {
			text = m.Object
		}
		if got := sorted(read(t, text)); m.Err != nil || (m.Refusal == nil) != (native != nil) || native != nil && !equality.Semantic.DeepEqual(got, sorted(native)) {
			a, _ := json.Marshal(got)    //nolint:errchkjson // it was read
			b, _ := json.Marshal(native) //nolint:errchkjson // it was read
			t.Fatalf("in the other order, pod %s becomes %s %v %v\nwant %s", req.Object.Raw, a, m.Refusal, m.Err, b)
		}
	}
	if native == nil {
		return false, true
	}
	if i.readsOwn {
		return !equality.Semantic.DeepEqual(read(t, req.Object.Raw), native), false
	}
	again := podRequest(namespace, native)
	ours, twice, why, nativeWhy := i.results(t, again)
	if !equality.Semantic.DeepEqual(twice, native) || !equality.Semantic.DeepEqual(ours, native) {
		a, _ := json.Marshal(ours)  //nolint:errchkjson // it was read
		b, _ := json.Marshal(twice) //nolint:errchkjson // it was read
		t.Fatalf("namespace %s, injected pod %s\n  ours %s %s\nnative %s %s", namespace, again.Object.Raw, a, why, b, nativeWhy)
	}
	return !equality.Semantic.DeepEqual(read(t, req.Object.Raw), native), false
}

// podsOf makes random pods. They may have what profiles add, under the same names and with others.
type podsOf struct {
	*rand.Rand
	containers, volumes, annotations []string
}

func (r *podsOf) one(of ...string) string { return of[r.Intn(len(of))] }
func (r *podsOf) in(n int) bool           { return r.Intn(n) == 0 }

func (r *podsOf) container(name string) corev1.Container {
	c := corev1.Container{Name: name, Image: "example/" + name + ":0"}
	if r.in(3) {
		c.Env = append(c.Env, corev1.EnvVar{Name: r.one("A", "LEVEL", "OTEL_SERVICE_NAME"), Value: "own"})
	}
	if r.in(4) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: r.one("/data", "/data", "/var/log/app", "/v0")})
	}
	if r.in(4) {
		c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: []int32{80, 8080, 2020, 9000, 9001}[r.Intn(5)], Protocol: corev1.Protocol(r.one("TCP", "UDP"))})
	}
	if r.in(6) {
		c.SecurityContext = &corev1.SecurityContext{RunAsUser: new([]int64{0, 1000, 1337, 4000}[r.Intn(4)])}
	}
	if r.in(8) {
		c.Args, c.ImagePullPolicy, c.TerminationMessagePolicy = []string{"own"}, corev1.PullAlways, corev1.TerminationMessageFallbackToLogsOnError
	}
	return c
}

// pod returns a pod, which may name the profiles.
func (r *podsOf) pod(profiles ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}
	for _, label := range []string{"app", "tier", "app.kubernetes.io/name", "on"} {
		if r.in(3) {
			metav1.SetMetaDataLabel(&p.ObjectMeta, label, r.one("a", "b", "own"))
		}
	}
	if r.in(3) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.InjectAnnotation, r.one("true", "true", "false", r.one(profiles...), "-"+r.one(profiles...), profiles[0]+" , -"+profiles[len(profiles)-1]))
	}
	for _, key := range r.annotations {
		if r.in(8) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, r.one("", "debug", "warn", "10m", "200Mi", "100M", "0.5", "1.5", "7", "-7", "70000", "8081", "true", "yes", "a,b", "a, b ,c", ",", "10s", "1h30m", "5 m", "x\ty", "null", "stdout", "4Mi", "gw:4317"))
		}
	}
	if r.in(12) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "note", "own")
	}
	names := []string{"app", "web", "worker", "init"}
	if r.in(6) {
		names = append(names, r.containers...)
	}
	r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	inits := r.Intn(3)
	for i, name := range names[:inits+1+r.Intn(2)] {
		c := r.container(name)
		if i < inits {
			if r.in(3) {
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data"})
	if r.in(5) && len(r.volumes) > 0 {
		v := corev1.Volume{Name: r.volumes[r.Intn(len(r.volumes))]}
		switch r.Intn(4) {
		case 0:
			v.EmptyDir = &corev1.EmptyDirVolumeSource{}
		case 1:
			v.EmptyDir = &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
		case 2:
			v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}
		case 3:
			v.HostPath = &corev1.HostPathVolumeSource{Path: "/var/log"}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	p.Spec.HostNetwork = r.in(15)
	if r.in(6) {
		p.Spec.RestartPolicy = corev1.RestartPolicy(r.one("Always", "Never", "OnFailure"))
	}
	if r.in(6) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new([]int64{0, 1337, 4000}[r.Intn(3)])}
		if r.in(2) {
			p.Spec.SecurityContext.RunAsNonRoot, p.Spec.SecurityContext.FSGroup = new(true), new(int64(r.Intn(2)))
		}
	}
	if r.in(12) {
		p.Spec.OS = &corev1.PodOS{Name: corev1.OSName(r.one("linux", "windows"))}
	}
	if r.in(5) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: r.one("a", "b"), Operator: corev1.TolerationOpExists}}
	}
	if r.in(5) {
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: r.one("registry", "own")}}
	}
	if r.in(5) {
		p.Spec.NodeSelector = map[string]string{"arch": r.one("amd64", "arm64")}
	}
	if r.in(5) {
		p.Spec.TerminationGracePeriodSeconds = new([]int64{30, 60, 90}[r.Intn(3)])
	}
	return p
}

// TestExampleProfiles compares the profiles of the examples that are native for random pods.
func TestExampleProfiles(t *testing.T) {
	t.Parallel()
	preset := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mesh-settings, namespace: mesh-system}\ndata: {proxyVersion: v1, controlPlane: cp, drainSeconds: \"5\"}\n"
	for file, want := range map[string]map[string]Status{
		"mesh-proxy/profile.yaml": {"mesh-proxy": Native}, "otel-collector/profile.yaml": {"otel-collector": Native}, "mesh-preset/profile.yaml": {"mesh-preset": Differs},
		"log-shipper/profile.yaml": {"log-shipper": Native}, "share-a-mount/profile.yaml": {"backup": Stays}, "secrets-agent/profile.yaml": {"secrets-agent": Native},
		"quickstart/config/profile.yaml": {"log-shipper": Native}, "order-containers/profiles.yaml": {"mesh": Native, "secrets": Native, "warm-up": Native},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("../../../../../manifests/examples", file))
			if err != nil {
				t.Fatal(err)
			}
			i := newInjection(t, map[string][]byte{"profile.yaml": text, "preset.yaml": []byte(preset)}, true)
			got, changed, refused := map[string]Status{}, 0, 0
			for _, item := range i.out.Items {
				got[item.Name] = item.Status
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
			if slices.Contains(slices.Collect(maps.Values(got)), Stays) {
				return
			}
			r := &podsOf{Rand: rand.New(rand.NewSource(1)), volumes: []string{"logs", "mesh-xtables", "mesh-bootstrap", "secrets-agent", "secrets-agent-config"}}
			for name := range want {
				r.containers = append(r.containers, name)
				for _, parameter := range []string{"cpu", "memory", "output", "logLevel", "gateway", "sampling", "config", "size", "excludeInboundPorts", "unknown"} {
					r.annotations = append(r.annotations, name+"."+v1alpha1.ParameterDomain+"/"+parameter)
				}
			}
			for range 150 {
				pod := r.pod(slices.Sorted(maps.Keys(want))...)
				c, no := i.check(t, r.one("plain", "preset", "asking", "declining"), pod)
				changed, refused = changed+count(c), refused+count(no)
			}
			if changed == 0 || refused == 0 {
				t.Errorf("%d pods were changed, %d refused", changed, refused)
			}
		})
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// randomProfile returns a profile that no person would write.
func (r *podsOf) randomProfile(n int) map[string]any {
	name := fmt.Sprintf("p%d", n)
	type object = map[string]any
	var parameters []any
	text := func(of ...string) string { return r.one(of...) }
	values := []string{"literal", "", "$${x}", "a-${pod.metadata.?labels[?'app'].orValue('none')}", "${namespace.metadata.name}", "${namespace.metadata.?labels[?'team'].orValue('-')}/${string(size(pod.spec.containers))}"}
	if r.in(2) {
		parameters = append(parameters, object{"name": "level", "type": "enum", "enum": []any{"debug", "warn", ""}, "default": "debug", "onInvalid": text("Refuse", "Skip")})
		values = append(values, "${params.level}", "level=${params.level}")
	}
	if r.in(3) {
		parameters = append(parameters, object{"name": "number", "type": text("integer", "port"), "default": 9000, "minimum": 5})
		values = append(values, "n=${params.number}", "${string(params.number)}")
	}
	if r.in(4) {
		parameters = append(parameters, object{"name": "list", "type": "list", "default": "a,b", "maxItems": 2, "pattern": "[a-z]+"})
		values = append(values, "${params.list.join(';')}")
	}
	if r.in(4) {
		parameters = append(parameters, object{"name": "text", "type": "string", "default": "x", "maxLength": 4}, object{"name": "wait", "type": "duration", "default": "5s", "maximum": "1h"}, object{"name": "flag", "type": "boolean", "default": false})
		values = append(values, "${params.text}-${params.wait}", "${params.flag}!", "${params.flag ? 'yes' : 'no'}")
	}
	if r.in(4) {
		parameters = append(parameters, object{"name": "size", "type": "quantity", "default": "64Mi", "maximum": "128Mi", "onInvalid": text("Refuse", "Skip")})
	}
	container := func(k int, native bool) any {
		c := object{"name": fmt.Sprintf("%s-c%d", name, k), "image": "example/side:1", "args": []any{text(values...), "${pod.metadata.?labels[?'tier']}"}}
		if native {
			c["restartPolicy"] = "Always"
		}
		if r.in(2) {
			c["env"] = []any{object{"name": "A", "value": text(values...)}, object{"name": "P", "valueFrom": object{"fieldRef": object{"fieldPath": "metadata.name"}}}}
		}
		if r.in(3) {
			c["ports"] = []any{object{"containerPort": 9000 + 10*n + k}}
		}
		switch r.Intn(5) {
		case 0:
			c["securityContext"] = object{"runAsNonRoot": true, "runAsUser": 4000}
		case 1:
			c["securityContext"] = object{"runAsNonRoot": true}
		case 2:
			c["securityContext"] = object{"runAsUser": 0}
		}
		if r.in(4) {
			c["resources"] = object{"requests": object{"memory": "0.5Gi", "cpu": "0.1"}}
		}
		return c
	}
	template, spec := object{}, object{"injection": text("OptOut", "OptOut", "OptIn"), "onConflict": text("Refuse", "Refuse", "Skip", "Keep"), "hostNetwork": text("Skip", "Inject")}
	pod := object{}
	var inits, containers, volumes []any
	for k := range r.Intn(3) {
		inits = append(inits, container(k, r.in(2)))
	}
	if r.in(4) {
		containers = append(containers, container(3, false))
		spec["podsThatEnd"] = text("Skip", "Inject")
	}
	pod["initContainers"], pod["containers"] = inits, containers
	for k := range r.Intn(3) {
		volumes = append(volumes, object{"name": fmt.Sprintf("v%d", k), text("emptyDir", "emptyDir", "configMap"): nil})
		v, _ := volumes[k].(object)
		if _, is := v["configMap"]; is {
			v["configMap"] = object{"name": text("settings", "settings-${namespace.metadata.name}")}
		} else {
			v["emptyDir"] = object{}
		}
	}
	if n == 0 {
		pod["volumes"] = volumes
	} else {
		volumes = nil
	}
	if r.in(4) {
		template["metadata"] = object{"labels": object{"on": text("1", "own")}, "annotations": object{"note": text(values...)}}
	}
	for field, value := range map[string]any{
		"tolerations": []any{object{"key": "a", "operator": "Exists"}}, "imagePullSecrets": []any{object{"name": "registry"}}, "nodeSelector": object{"arch": "amd64"},
		"terminationGracePeriodSeconds": 60, "dnsConfig": object{"options": []any{object{"name": "ndots", "value": "2"}}}, "enableServiceLinks": false,
	} {
		if r.in(6) {
			pod[field] = value
		}
	}
	template["spec"] = pod
	if r.in(2) {
		var all []any
		for range 1 + r.Intn(2) {
			a := object{"env": []any{object{"name": text("A", "B"), "value": text(values...)}, object{"name": text("C", "LEVEL"), "value": "1"}}}
			if len(volumes) > 0 && r.in(2) {
				a["volumeMounts"] = []any{object{"name": "v0", "mountPath": text("/v0", "/data", "/var/log/app")}}
			}
			if r.in(4) {
				a["terminationMessagePolicy"], a["imagePullPolicy"] = "FallbackToLogsOnError", "Always"
			}
			entry := object{"template": a, "initContainers": r.in(2)}
			if r.in(3) {
				entry[text("names", "except")] = []any{"app", "init"}
			}
			all = append(all, entry)
		}
		spec["appContainers"] = all
	}
	match := object{}
	if r.in(3) {
		match["objectSelector"] = object{"matchLabels": object{"tier": "a"}}
	}
	if r.in(3) {
		match["namespaceSelector"] = object{"matchExpressions": []any{object{"key": "team", "operator": text("Exists", "DoesNotExist")}}}
	}
	if r.in(3) {
		match["matchConditions"] = []any{object{"name": "c", "expression": text("pod.spec.?restartPolicy.orValue('') == 'Always'", "namespace.metadata.name != 'plain'", "pod.metadata.labels['app'] == 'a'", "has(pod.spec.nodeSelector) || true")}}
	}
	spec["placement"] = object{"initContainers": text("First", "Last"), "containers": text("First", "Last")}
	if len(inits) > 0 && r.in(3) {
		for _, c := range inits {
			if of, _ := c.(object)["securityContext"].(object); of["runAsUser"] == 4000 {
				spec["distinctUsers"] = []any{c.(object)["name"]}
			}
		}
	}
	spec["match"], spec["template"], spec["parameters"] = match, template, parameters
	return object{"apiVersion": "gatehouse.dev/v1alpha1", "kind": "SidecarProfile", "metadata": object{"name": name}, "spec": spec}
}

// TestRandomProfiles compares random profiles, alone and with others, for random pods.
func TestRandomProfiles(t *testing.T) {
	t.Parallel()
	const profiles, pods = 200, 20
	r := &podsOf{
		Rand: rand.New(rand.NewSource(51)), containers: []string{"p0-c0", "p1-c1", "p0-c3"}, volumes: []string{"v0", "v1"},
		annotations: []string{"p0.sidecar.gatehouse.dev/level", "p0.sidecar.gatehouse.dev/number", "p1.sidecar.gatehouse.dev/list", "p0.sidecar.gatehouse.dev/text", "p0.sidecar.gatehouse.dev/wait", "p1.sidecar.gatehouse.dev/flag", "p0.sidecar.gatehouse.dev/size"},
	}
	sets, compiled, changed, refused, stays := 0, 0, 0, 0, map[string]int{}
	for compiled < profiles {
		texts, ours := map[string][]byte{}, 1+r.Intn(2)
		for n := range ours {
			text, err := yaml.Marshal(r.randomProfile(n))
			if err != nil {
				t.Fatal(err)
			}
			texts[fmt.Sprintf("p%d.yaml", n)] = text
		}
		sets++
		i := newInjection(t, texts, sets%3 == 0) // each compilation takes its time
		if i == nil {
			continue
		}
		native := true
		for _, item := range i.out.Items {
			if item.Status == Stays {
				native = false
				stays[strings.Join(item.Reasons, "; ")]++
			}
			if slices.ContainsFunc(item.Reasons, func(reason string) bool {
				return strings.HasPrefix(reason, "distinctUsers") || strings.HasPrefix(reason, "expressions about the pod may see")
			}) {
				native = false
			}
		}
		if !native {
			continue
		}
		compiled += ours
		for range pods {
			pod := r.pod([]string{"p0", "p1"}[:ours]...)
			c, no := i.check(t, r.one("plain", "preset", "asking", "declining"), pod)
			changed, refused = changed+count(c), refused+count(no)
		}
		if t.Failed() {
			for _, text := range texts {
				t.Logf("%s", text)
			}
		}
	}
	t.Logf("%d profiles, %d pods changed, %d refused, stayed: %v", compiled, changed, refused, stays)
	if changed < 300 || refused < 300 {
		t.Errorf("%d pods were changed, %d refused", changed, refused)
	}
}

// TestProfileReasons names each reason that keeps a profile with Gatehouse, and each difference.
func TestProfileReasons(t *testing.T) {
	t.Parallel()
	const (
		side  = "{name: side, image: s, restartPolicy: Always"
		other = "spec: {injection: OptOut, template: {spec: {initContainers: [{name: other, image: o, restartPolicy: Always}]}}}"
	)
	native := "template: {spec: {initContainers: [" + side + "}]}}"
	with := func(member string) string {
		return "template: {spec: {initContainers: [" + side + ", " + member + "}]}}"
	}
	for name, test := range map[string]struct {
		spec, beside, kubernetes string
		status                   Status
		reason                   string
	}{
		"nothing special":          {spec: native, status: Native},
		"an older API server":      {spec: native, kubernetes: "1.35", status: Stays, reason: "has no MutatingAdmissionPolicy that is on"},
		"a rollout":                {spec: native + ", rollout: {percent: 50}", status: Stays, reason: "rollout: "},
		"a replaced profile":       {spec: native, beside: "spec: {rollout: {percent: 5, replaces: p}, template: {spec: {initContainers: [" + side + "}]}}}", status: Stays, reason: "another profile replaces it"},
		"a share":                  {spec: native + ", share: [{container: side, volumeMounts: true}]", status: Stays, reason: "share: "},
		"a merged container":       {spec: native + ", onSameName: Keep", status: Stays, reason: "onSameName: Keep"},
		"a replaced container":     {spec: native + ", onSameName: Replace", status: Stays, reason: "onSameName: Replace"},
		"a pod that ends":          {spec: "podsThatEnd: Refuse, template: {spec: {containers: [{name: side, image: s}]}}", status: Stays, reason: "podsThatEnd: Refuse"},
		"two presets":              {spec: native + ", presets: [{name: a, configMap: {namespace: ns, name: a}}, {name: b, configMap: {namespace: ns, name: b}}]", status: Stays, reason: "presets: "},
		"a preset":                 {spec: native + ", presets: [{name: a, configMap: {namespace: ns, name: a}}]", status: Differs, reason: `as long as there is no ConfigMap "a"`},
		"AppArmor":                 {spec: `template: {metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/app: unconfined}}, spec: {initContainers: [` + side + "}]}}", status: Stays, reason: "AppArmor"},
		"a kept port":              {spec: with("ports: [{containerPort: 80}]") + ", onConflict: Keep", status: Stays, reason: "onConflict: Keep leaves out ports"},
		"a port of an address":     {spec: with("ports: [{containerPort: 80, hostPort: 80, hostIP: 127.0.0.1}]"), status: Stays, reason: "hostIP"},
		"a skipped conflict":       {spec: native + ", onConflict: Skip", status: Differs, reason: "is refused, and not created without the profile"},
		"probes of applications":   {spec: "appContainers: [{template: {readinessProbe: {tcpSocket: {port: 80}}}}]", status: Stays, reason: "appContainers[0].template.readinessProbe"},
		"ports of applications":    {spec: "appContainers: [{template: {ports: [{containerPort: 80}]}}]", status: Stays, reason: "appContainers[0].template.ports"},
		"resources":                {spec: "appContainers: [{template: {resources: {limits: {cpu: 1}}}}]", status: Stays, reason: "appContainers[0].template.resources.limits"},
		"a field of its own":       {spec: "template: {spec: {hostUsers: false}}", status: Stays, reason: "template.spec.hostUsers"},
		"spread":                   {spec: "template: {spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}}", status: Stays, reason: "topologySpreadConstraints"},
		"an optional field":        {spec: "template: {spec: {priorityX: 1}}", status: ""},
		"the pod's user":           {spec: "template: {spec: {securityContext: {runAsNonRoot: true}}}", status: Differs, reason: "runs as root and must not is not refused"},
		"a size of the pod":        {spec: with(`args: ["${string(size(pod.spec.containers))}"]`), status: Differs, reason: readsOwn},
		"an expression and others": {spec: with(`args: ["${pod.metadata.labels['a']}"]`), beside: other, status: Differs, reason: "may see what other profiles have added"},
		"users and others":         {spec: with("securityContext: {runAsUser: 7}") + ", distinctUsers: [side]", beside: other, status: Differs, reason: "distinctUsers: "},
		"a label and others":       {spec: native[:len(native)-1] + ", metadata: {labels: {a: b}}}", beside: "spec: {template: {metadata: {labels: {a: c}}}}", status: Differs, reason: sameSpot},
		"a variable and others":    {spec: "appContainers: [{template: {env: [{name: A, value: b}]}}]", beside: "spec: {appContainers: [{template: {env: [{name: A, value: c}, {name: B, value: c}]}}]}", status: Differs, reason: sameSpot},
		"a long text":              {spec: with("args: [" + strings.Repeat("x", maxExpression) + "]"), status: Stays, reason: "more than 10000 characters"},
		"a parameter by its index": {spec: with(`args: ["${params['a']}"]`) + ", parameters: [{name: a, type: string, default: x}]", status: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head := "apiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: %s}\n%s\n"
			texts := map[string][]byte{"p.yaml": fmt.Appendf(nil, head, "p", "spec: {injection: OptOut, "+test.spec+"}")}
			if test.beside != "" {
				texts["other.yaml"] = fmt.Appendf(nil, head, "other", test.beside)
			}
			c, found := config.InspectPaths(nil, texts)
			if err := found.Err(); err != nil && test.status != "" {
				t.Fatal(err)
			}
			out, err := Compile(c, Options{Kubernetes: cmp.Or(test.kubernetes, "1.36"), Now: now()})
			if test.status == "" {
				if err == nil && found.Err() == nil {
					t.Error("Gatehouse takes it itself")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(out.Items, func(i *Item) bool { return i.Name == "p" })
			item, isMade := out.Items[i], slices.ContainsFunc(out.Documents, func(d Document) bool { return d.From == "SidecarProfile/p" })
			if item.Status != test.status || !strings.Contains(strings.Join(item.Reasons, "; "), test.reason) || isMade == (item.Status == Stays) {
				t.Errorf("%s %q, a document: %v", item.Status, item.Reasons, isMade)
			}
		})
	}
}

// TestProfileOfSomeNamespaces excludes the namespaces and the people of whom Gatehouse is sent nothing.
func TestProfileOfSomeNamespaces(t *testing.T) {
	t.Parallel()
	c, found := config.InspectPaths(nil, map[string][]byte{"p.yaml": []byte("apiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: p}\nspec: {injection: OptOut, match: {namespaceSelector: {matchLabels: {a: b}}}, template: {metadata: {labels: {c: d}}}}\n")})
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	out, err := Compile(c, Options{Kubernetes: "1.36", Now: now(), ExcludeNamespaces: []string{"kube-system"}})
	if err != nil || len(out.Documents) != 2 {
		t.Fatal(err, out)
	}
	spec := out.Documents[0].MutatingPolicy.Spec
	if got := metav1.FormatLabelSelector(spec.MatchConstraints.NamespaceSelector); got != "a=b,kubernetes.io/metadata.name notin (kube-system)" || spec.MatchConditions[0].Name != "not-break-glass" {
		t.Errorf("%s, %v", got, spec.MatchConditions)
	}
	if len(c.Sidecar.Profiles[0].Spec.Match.NamespaceSelector.MatchExpressions) > 0 {
		t.Error("the source has changed")
	}
}

// TestMutatingPolicies carries over policies that mutate with their bindings.
func TestMutatingPolicies(t *testing.T) {
	t.Parallel()
	const text = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: a, annotations: {gatehouse.dev/contact: jane}}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/metadata/labels/x"}]'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: a}
`
	for kubernetes, want := range map[string]int{"1.35": 0, "1.36": 2, "1.37": 2} {
		c, found := config.InspectPaths(nil, map[string][]byte{"a.yaml": []byte(text)})
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		out, err := Compile(c, Options{Kubernetes: kubernetes, Now: now()})
		if err != nil || len(out.Documents) != want || len(out.Items) != 1 || out.Items[0].Kind != "MutatingAdmissionPolicy" {
			t.Fatalf("%s: %v, %d documents", kubernetes, err, len(out.Documents))
		}
		if want > 0 && (out.Documents[0].PolicyName() != "a" || out.Documents[1].Object().GetName() != "b" || out.Documents[1].PolicyName() != "a" || out.Documents[0].Object().GetAnnotations()[v1alpha1.ContactAnnotation] != "jane") {
			t.Errorf("%s: %v", kubernetes, out.Documents)
		}
	}
}

// TestProfileAttacks has pods whose authors want none of the sidecar, or another one.
func TestProfileAttacks(t *testing.T) {
	t.Parallel()
	i := newInjection(t, map[string][]byte{"p.yaml": []byte("apiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: p}\nspec:\n  template: {spec: {initContainers: [{name: proxy, image: \"example/proxy:1\", restartPolicy: Always, securityContext: {privileged: false}}]}}\n")}, false)
	always := new(corev1.ContainerRestartPolicyAlways)
	proxy := corev1.Container{Name: "proxy", Image: "example/proxy:1", RestartPolicy: always, SecurityContext: &corev1.SecurityContext{Privileged: new(false)}}
	for name, c := range map[string]struct {
		change  func(p *corev1.Pod, own *corev1.Container)
		refused bool
	}{
		"the same container": {change: func(*corev1.Pod, *corev1.Container) {}},
		"a forged annotation": {change: func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.InitContainers = nil
			p.Annotations = map[string]string{v1alpha1.StatusAnnotation: "{}"}
		}},
		"a mirrored annotation": {change: func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.InitContainers = nil
			p.Annotations = map[string]string{v1alpha1.StatusAnnotation: `{"profiles":{"p":{"initContainers":["proxy"]}}}`}
		}},
		"another command":           {change: func(_ *corev1.Pod, own *corev1.Container) { own.Command = []string{"sleep", "inf"} }, refused: true},
		"other args":                {change: func(_ *corev1.Pod, own *corev1.Container) { own.Args = []string{"--off"} }, refused: true},
		"another image":             {change: func(_ *corev1.Pod, own *corev1.Container) { own.Image = "own" }, refused: true},
		"an init container":         {change: func(_ *corev1.Pod, own *corev1.Container) { own.RestartPolicy = nil }, refused: true},
		"another securityContext":   {change: func(_ *corev1.Pod, own *corev1.Container) { own.SecurityContext.Privileged = new(true) }, refused: true},
		"without a securityContext": {change: func(_ *corev1.Pod, own *corev1.Container) { own.SecurityContext = nil }, refused: true},
		"in the other list": {change: func(p *corev1.Pod, own *corev1.Container) {
			own.RestartPolicy = nil
			p.Spec.Containers, p.Spec.InitContainers = append(p.Spec.Containers, *own), nil
		}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}, InitContainers: []corev1.Container{*proxy.DeepCopy()}}}
			c.change(pod, &pod.Spec.InitContainers[0])
			_, native, _, why := i.results(t, podRequest("asking", pod))
			if (native == nil) != c.refused {
				t.Fatalf("refused: %q", why)
			}
			if native != nil && (len(native.Spec.InitContainers) != 1 || native.Spec.InitContainers[0].Image != proxy.Image || native.Spec.InitContainers[0].RestartPolicy == nil) {
				t.Errorf("init containers are %+v", native.Spec.InitContainers)
			}
		})
	}
}
