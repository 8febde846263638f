package sidecar_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// everything is a profile that uses about all there is, except what needs a pod
// of a certain kind.
const everything = `
metadata: {name: all}
spec:
  injection: OptOut
  onSameName: Keep
  template:
    metadata: {labels: {mesh: "on"}, annotations: {example.com/mesh: "on"}}
    spec:
      terminationGracePeriodSeconds: 60
      imagePullSecrets: [{name: mesh}]
      tolerations: [{key: mesh, operator: Exists}]
      hostAliases: [{ip: 10.0.0.1, hostnames: [mesh]}]
      dnsConfig: {searches: [mesh], options: [{name: ndots, value: "2"}]}
      securityContext: {fsGroup: 1, supplementalGroups: [2]}
      topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}]
      affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone}}]}}
      initContainers:
      - {name: setup, image: example/setup}
      - {name: proxy, image: example/proxy, restartPolicy: Always, startupProbe: {exec: {command: [ok]}}, ports: [{containerPort: 15001}], volumeMounts: [{name: mesh, mountPath: /mesh}]}
      containers:
      - {name: agent, image: example/agent}
      volumes:
      - {name: mesh, emptyDir: {}}
      - {name: token, projected: {sources: [{serviceAccountToken: {path: t}}]}}
  appContainers:
  - initContainers: true
    template: {env: [{name: MESH, value: "on"}]}
  - except: [agent]
    template: {volumeMounts: [{name: mesh, mountPath: /mesh}], resources: {requests: {cpu: 10m}}}
  share:
  - {container: proxy, volumeMounts: true, env: ["*"]}
`

// TestTwiceWithOthersBetween changes a pod between two calls, as another webhook
// would. What has appeared gets what it lacks; what others have changed stays.
func TestTwiceWithOthersBetween(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, old, new string
		// same is a change that the second call leaves alone.
		same bool
		// want is a text that the second call must make of it.
		want string
	}{
		{name: "a container", old: `"containers":[`, new: `"containers":[{"name":"late"},`, want: `{"env":[{"name":"MESH","value":"on"}],"name":"late","resources":{"requests":{"cpu":"10m"}},"volumeMounts":[{"mountPath":"/mesh","name":"mesh"}]}`},
		{name: "an init container", old: `"initContainers":[`, new: `"initContainers":[{"name":"late"},`, want: `{"env":[{"name":"MESH","value":"on"}],"name":"late"}`},
		{name: "a label", old: `"labels":{`, new: `"labels":{"late":"x",`, same: true},
		{name: "a variable", old: `"env":[{"name":"MESH"`, new: `"env":[{"name":"LATE"},{"name":"MESH"`, want: `{"name":"LATE"}],"image":"example/proxy"`},
		{name: "another value of a label that was added", old: `"mesh":"on"`, new: `"mesh":"off"`, same: true},
		{name: "another value of a field that was added", old: `"terminationGracePeriodSeconds":60`, new: `"terminationGracePeriodSeconds":90`, same: true},
		{name: "another value of a variable that was added", old: `{"name":"MESH","value":"on"}`, new: `{"name":"MESH","value":"late"}`, same: true},
		{name: "another image", old: "example/agent", new: "mirror/agent", same: true},
		{name: "what was added goes", old: `,"tolerations":[{"key":"mesh","operator":"Exists"}]`, new: ``, want: `"tolerations":[{"key":"mesh","operator":"Exists"}]`},
		{name: "the API server's default comes back", old: `"terminationGracePeriodSeconds":60`, new: `"terminationGracePeriodSeconds":30`, want: `"terminationGracePeriodSeconds":60`},
		{name: "an unknown field", old: `"name":"app"`, new: `"name":"app","future":1`, same: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set := compile(t, everything)
			_, patched := inject(t, set, `{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"app"}]}}`)
			patched = sortedText(t, patched)
			changed := sortedText(t, strings.Replace(patched, tc.old, tc.new, 1))
			if changed == patched {
				t.Fatalf("%s is not in %s", tc.old, patched)
			}
			d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(changed)))
			check(t, "said", said(&d), "")
			if (d.Patches == nil) != tc.same || !d.Again {
				t.Fatalf("it does %v", d.Patches)
			}
			result := sortedText(t, apply(t, changed, d.Patches))
			if !strings.Contains(result, tc.want) {
				t.Errorf("%s is not in %s", tc.want, result)
			}
			if third := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(result))); third.Patches != nil || said(&third) != "" {
				t.Errorf("the third call does %v: %s", third.Patches, said(&third))
			}
		})
	}
}

// sortedText returns JSON with sorted members and without space.
func sortedText(t testing.TB, text string) string {
	t.Helper()
	return toJSON(t, toYAML(t, tree(t, text)))
}

// TestAddedLabelsSelectNothing: what a profile adds is no reason for another one,
// neither in the first call nor in the second.
func TestAddedLabelsSelectNothing(t *testing.T) {
	t.Parallel()
	adds := optOut("a", "template: {metadata: {labels: {mesh: here}, annotations: {example.com/mesh: here}}, spec: {nodeSelector: {mesh: here}}}")
	for name, match := range map[string]string{
		"selector":  "{objectSelector: {matchLabels: {mesh: here}}}",
		"condition": "{matchConditions: [{name: c, expression: 'has(pod.metadata) && has(pod.metadata.labels) && \"mesh\" in pod.metadata.labels'}]}",
		"field":     "{matchConditions: [{name: c, expression: 'has(pod.spec.nodeSelector)'}]}",
	} {
		for _, other := range []string{"b", "0"} {
			t.Run(name+" of "+other, func(t *testing.T) {
				t.Parallel()
				set := compile(t, adds, strings.Replace(spec("other", match, "OptOut"), "{name: other}", "{name: other-"+other+"}", 1))
				d, patched := inject(t, set, "metadata: {name: x}\nspec: {containers: [{name: app}]}")
				again := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(patched)))
				if len(d.Verdicts) != 2 || strings.Replace(reasons(&d), "applied", "already-there", 1) != reasons(&again) || strings.Count(reasons(&d), "=applied") != 1 {
					t.Errorf("first %s, then %s", reasons(&d), reasons(&again))
				}
			})
		}
	}
}

// TestStaleRevisions: a pod that is complete keeps the revision that it has, and
// of one that is not nobody could say what it would be.
func TestStaleRevisions(t *testing.T) {
	t.Parallel()
	profile := func(version, more string) string {
		return optOut("a", `template: {metadata: {labels: {version: "`+version+`"}}, spec: {initContainers: [`+native("a", "")+`]}}`+more)
	}
	old, now := compile(t, profile("one", "")), compile(t, profile("two", "\nappContainers: [{template: {env: [{name: A, value: a}]}}]"))
	_, pod := inject(t, old, "spec: {containers: [{name: app}]}")
	was, is := old.Decide(t.Context(), input(t, "{}")).Verdicts[0].Revision, now.Decide(t.Context(), input(t, "{}")).Verdicts[0].Revision

	d := now.Decide(t.Context(), sidecar.ForPod("shop", []byte(pod)))
	check(t, "reasons", reasons(&d), "a=already-there")
	check(t, "said", said(&d), `warning: the pod keeps revision "`+was+`" of sidecar profile "a": the active revision is "`+is+`"`)
	if d.Patches != nil {
		t.Errorf("got %v", d.Patches)
	}

	removed := strings.Replace(pod, `,"initContainers":[`, `,"initContainers":[],"was":[`, 1)
	d = now.Decide(t.Context(), sidecar.ForPod("shop", []byte(removed)))
	check(t, "reasons", reasons(&d), "a=refused")
	check(t, "said", said(&d), `refused: metadata.annotations[sidecar.gatehouse.dev/status]: the pod has revision "`+was+`" of sidecar profile "a", but a part of the active revision "`+is+`" is missing (hint: remove the annotation and everything that it lists from the pod)`)
}

// TestCopies decides about injected pods that come back without their annotations, as kubectl debug --copy-to makes them and some
// restores of backups.
func TestCopies(t *testing.T) {
	t.Parallel()
	all := compile(t, strings.Replace(everything, "onSameName: Keep", "onSameName: Refuse", 1))
	_, patched := inject(t, all, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"app","image":"x","env":[{"name":"X","value":"x"}],"volumeMounts":[{"name":"d","mountPath":"/d"}]}]}}`)
	copied := toJSON(t, strings.Replace(toYAML(t, tree(t, patched)), "metadata:", "metadata: {}\nformer:", 1))
	copied = strings.NewReplacer(`"former":`, `"status":`, `"image":"x"`, `"image":"y"`).Replace(copied)

	shipper := compile(t, optOut("shipper", `hostNetwork: Inject
template: {spec: {volumes: [{name: logs, emptyDir: {}}], initContainers: [{name: shipper, image: "shipper:1", restartPolicy: Always,
  startupProbe: {exec: {command: [ok]}}, readinessProbe: {httpGet: {port: 80}}, ports: [{containerPort: 80}], resources: {limits: {cpu: 1}},
  env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}], volumeMounts: [{name: logs, mountPath: /logs}]}]}}
appContainers: [{template: {volumeMounts: [{name: logs, mountPath: /var/log/app}]}}]`))
	const defaulted = `{"metadata": {"name": "copy", "namespace": "shop"}, "spec": {"initContainers": [{"name": "shipper", "image": "shipper:1", "imagePullPolicy": "IfNotPresent",
		"restartPolicy": "Always", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "ports": [{"containerPort": 80, "protocol": "TCP"}],
		"startupProbe": {"exec": {"command": ["ok"]}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
		"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}, "env": [{"name": "IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
		"volumeMounts": [{"name": "logs", "mountPath": "/logs"}, {"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}]}],
		"containers": [{"name": "app", "image": "y", "volumeMounts": [{"name": "logs", "mountPath": "/var/log/app"}]}], "volumes": [{"name": "logs", "emptyDir": {}}]}}`
	const sameName = `"shipper" is the name of a container that sidecar profile "shipper" adds`
	for _, tc := range []struct {
		name string
		set  *sidecar.Set
		pod  string
		want string // what is said
	}{
		{"everything", all, copied, ""},
		{"with defaults", shipper, defaulted, ""},
		{"without a volume", shipper, strings.Replace(defaulted, `, "volumes": [{"name": "logs", "emptyDir": {}}]`, "", 1), ""},
		{"on the network of the node", shipper, strings.NewReplacer(`"spec": {`, `"spec": {"hostNetwork": true, `, `"protocol": "TCP"`, `"protocol": "TCP", "hostPort": 80`).Replace(defaulted), ""},
		{"another image", shipper, strings.Replace(defaulted, "shipper:1", "mine:1", 1), sameName},
		{"no sidecar", shipper, strings.Replace(defaulted, `"restartPolicy": "Always", `, "", 1), sameName},
		{"a variable more", shipper, strings.Replace(defaulted, `"env": [`, `"env": [{"name": "A"}, `, 1), sameName},
		{"another probe", shipper, strings.Replace(defaulted, `"periodSeconds": 10`, `"periodSeconds": 11`, 1), sameName},
		{"another list", shipper, strings.Replace(defaulted, `"initContainers"`, `"ephemeralContainers"`, 1), sameName},
		{"an unknown field", shipper, strings.Replace(defaulted, `"image": "shipper:1"`, `"image": "shipper:1", "future": 1`, 1), sameName},
		{"a huge quantity", shipper, strings.Replace(defaulted, `"limits": {"cpu": "1"}`, `"limits": {"cpu": "1e999999999"}`, 1), sameName},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := tc.set.Decide(t.Context(), sidecar.ForPod("shop", []byte(tc.pod)))
			if got := said(&d); !strings.Contains(got, tc.want) || (tc.want == "") != (got == "") {
				t.Fatalf("said %q, want %q", got, tc.want)
			}
			if tc.want != "" {
				return
			}
			once := sortedText(t, apply(t, tc.pod, d.Patches))
			if !strings.Contains(once, `\"initContainers\":[`) {
				t.Errorf("the status does not list the container: %s", once)
			}
			if containers := strings.Count(once, `"image":`); containers != strings.Count(tc.pod, `"image":`) {
				t.Errorf("a container was added: %s", once)
			}
			if again := tc.set.Decide(t.Context(), sidecar.ForPod("shop", []byte(once))); again.Patches != nil || said(&again) != "" {
				t.Errorf("the second call does %v: %s", again.Patches, said(&again))
			}
		})
	}
}

// TestVariablesComeBackInOrder removes variables that were added, as another webhook would:
// they come back in front of those that refer to them.
func TestVariablesComeBackInOrder(t *testing.T) {
	t.Parallel()
	set := compile(t, `
metadata: {name: a}
spec:
  injection: OptOut
  appContainers:
  - template: {env: [{name: A, value: a}, {name: B, value: $(A)}, {name: C, value: $(B)}, {name: D, value: d}]}
`)
	pod := `{"metadata":{},"spec":{"containers":[{"name":"app","env":[{"name":"OWN","value":"o"}]}]}}`
	_, all := inject(t, set, pod)
	for _, tc := range []struct{ name, gone string }{
		{"the first", "A"}, {"two in the middle", "BC"}, {"the last", "D"}, {"those around one", "ABD"}, {"all", "ABCD"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			changed := all
			for _, name := range tc.gone {
				changed = strings.Replace(changed, map[rune]string{
					'A': `,{"name":"A","value":"a"}`, 'B': `,{"name":"B","value":"$(A)"}`, 'C': `,{"name":"C","value":"$(B)"}`, 'D': `,{"name":"D","value":"d"}`,
				}[name], "", 1)
			}
			if changed == all {
				t.Fatalf("nothing is gone from %s", all)
			}
			d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(changed)))
			check(t, "again", sortedText(t, apply(t, changed, d.Patches)), sortedText(t, all))
		})
	}
}
