package sidecar_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestMatchConditions: all must be true; one that is false decides, even beside
// one that cannot be evaluated.
func TestMatchConditions(t *testing.T) {
	t.Parallel()
	const (
		yes   = "{name: labelled, expression: 'namespace.metadata.labels[\"tier\"] == \"web\"'}"
		no    = "{name: none, expression: 'size(pod.spec.containers) == 0'}"
		fails = "{name: broken, expression: 'pod.spec.hostPID'}"
		cause = `could not tell: match condition "broken" of sidecar profile "a": the profile's spec.match.matchConditions[0].expression: "pod.spec.hostPID" fails: no such key: hostPID (hint: write pod.spec.?hostPID.orValue(false))`
	)
	for _, tc := range []struct{ name, conditions, reasons, says string }{
		{"none", "", "a=applied", ""},
		{"true", yes, "a=applied", ""},
		{"false", no, "a=condition-false", ""},
		{"true and false", yes + "," + no, "a=condition-false", ""},
		{"error", fails, "a=unknown", cause},
		{"error and true", fails + "," + yes, "a=unknown", cause},
		{"error and false", fails + "," + no, "a=condition-false", ""},
		{"false and error", no + "," + fails, "a=condition-false", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set := compileIn(t, shop(t, "labels: {tier: web}"), spec("a", "{matchConditions: ["+tc.conditions+"]}", "OptOut"))
			d, _ := inject(t, set, "spec: {containers: [{name: app}]}")
			check(t, "reasons", reasons(&d), tc.reasons)
			check(t, "said", said(&d), tc.says)
		})
	}
}

// TestMatchConditionsHaveNoTime: a request that is over has no answer.
func TestMatchConditionsHaveNoTime(t *testing.T) {
	t.Parallel()
	set := compile(t, spec("a", "{matchConditions: [{name: c, expression: 'size(pod.spec.containers) == 1'}]}", "OptOut"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in := input(t, "spec: {containers: [{name: app}]}")
	in.Context = ctx
	if d := set.Decide(in); d.Err == nil || d.Patches != nil {
		t.Errorf("got %+v", d)
	}
}

// TestMatchConditionsOfAnUnknownNamespace: what is known of it is its name.
func TestMatchConditionsOfAnUnknownNamespace(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string]string{
		`namespace.metadata.name == "shop"`:                                                "a=applied",
		`namespace.metadata.name == "other"`:                                               "a=condition-false",
		`namespace.metadata.labels["tier"] == "web"`:                                       "a=unknown",
		`namespace.metadata.name == "other" && namespace.metadata.labels["tier"] == "web"`: "a=condition-false",
	} {
		set := compileIn(t, objects{}, spec("a", "{matchConditions: [{name: c, expression: '"+condition+"'}]}", "OptOut"))
		d, _ := inject(t, set, "spec: {containers: [{name: app}]}")
		check(t, condition, reasons(&d), want)
	}
}

// tuned is a profile with a parameter of every type.
const tuned = `
metadata: {name: mesh}
spec:
  injection: OptOut
  parameters:
  - {name: level, type: enum, enum: [debug, info], default: info}
  - {name: cpu, type: quantity, default: 100m, maximum: "2"}
  - {name: memory, type: quantity, default: 64Mi}
  - {name: port, type: port, default: 9000}
  - {name: trace, type: boolean, default: false, onInvalid: Skip}
  - {name: replicas, type: integer, default: 2, minimum: 1, maximum: 5}
  - {name: timeout, type: duration, default: 5s}
  - {name: team, type: string, default: none, pattern: "[a-z]+"}
  - {name: paths, type: list, default: [a, b]}
  template:
    spec:
      containers:
      - name: mesh
        image: example/mesh
        args: ["--level=${params.level}", "--paths=${params.paths.join(' ')}", "--timeout=${params.timeout}", "--team=${params.team}", "--trace=${params.trace}", "$${kept}"]
        ports: [{containerPort: "${params.port}"}]
        resources: {requests: {cpu: "${params.cpu}", memory: "${params.memory}"}}
        readinessProbe: {tcpSocket: {port: "${params.port}"}, failureThreshold: "${params.replicas}"}
`

// tunedWith returns what the profile adds, with changes.
func tunedWith(changes ...string) string {
	return "{containers: [{name: app}, " + strings.NewReplacer(changes...).Replace(`{name: mesh, image: example/mesh,
    args: ["--level=info", "--paths=a b", "--timeout=5s", "--team=none", "--trace=false", "${kept}"], ports: [{containerPort: 9000}],
    resources: {requests: {cpu: 100m, memory: 64Mi}}, readinessProbe: {tcpSocket: {port: 9000}, failureThreshold: 2}}`) + "]}"
}

// annotated returns a pod of one container, with annotations in YAML.
func annotated(annotations string) string {
	return "metadata: {annotations: {" + annotations + "}}\nspec: {containers: [{name: app}]}"
}

// TestParameters: each comes from the pod, else the namespace, else the default,
// for itself; and what is not allowed refuses or skips, as it says.
func TestParameters(t *testing.T) {
	t.Parallel()
	const p = "mesh.sidecar.gatehouse.dev/"
	set := func(annotations, spec string) string {
		return "metadata: {annotations: {" + annotations + "}}\nspec: " + spec
	}
	refused := func(name, text, allowed string) []string {
		return []string{"refused: metadata.annotations[" + p + name + "]: " + text + " is not allowed: allowed is " + allowed}
	}
	table := []injection{
		{name: "defaults", pod: annotated(""), want: "spec: " + tunedWith()},
		{name: "one resource", pod: annotated(p + "cpu: 500m"), want: set(p+"cpu: 500m", tunedWith("100m", "500m"))},
		{name: "one resource of the namespace", namespace: "annotations: {" + p + "cpu: 500m}", pod: annotated(""), want: "spec: " + tunedWith("100m", "500m")},
		{
			name: "pod before namespace, each for itself", namespace: "annotations: {" + p + "cpu: 500m, " + p + "memory: 1Gi}",
			pod: annotated(p + "cpu: 200m"), want: set(p+"cpu: 200m", tunedWith("100m", "200m", "64Mi", "1Gi")),
		},
		{name: "enum", pod: annotated(p + "level: debug"), want: set(p+"level: debug", tunedWith("info", "debug"))},
		{name: "port", pod: annotated(p + "port: '80'"), want: set(p+"port: '80'", tunedWith("9000", "80"))},
		{name: "boolean", pod: annotated(p + "trace: 'true'"), want: set(p+"trace: 'true'", tunedWith("trace=false", "trace=true"))},
		{name: "integer", pod: annotated(p + "replicas: '5'"), want: set(p+"replicas: '5'", tunedWith("failureThreshold: 2", "failureThreshold: 5"))},
		{name: "duration", pod: annotated(p + "timeout: 1m30s"), want: set(p+"timeout: 1m30s", tunedWith("timeout=5s", "timeout=1m30s"))},
		{name: "string", pod: annotated(p + "team: pay"), want: set(p+"team: pay", tunedWith("team=none", "team=pay"))},
		{name: "list", pod: annotated(p + "paths: 'x, y,z'"), want: set(p+"paths: 'x, y,z'", tunedWith("paths=a b", "paths=x y z"))},
		{
			name: "of a profile that does not exist", pod: annotated("logs.sidecar.gatehouse.dev/level: x"), want: set("logs.sidecar.gatehouse.dev/level: x", tunedWith()),
			says: []string{`warning: metadata.annotations[logs.sidecar.gatehouse.dev/level] has no effect: there is no sidecar profile "logs"`},
		},

		{name: "enum not allowed", pod: annotated(p + "level: trace"), reasons: "mesh=refused", says: refused("level", `"trace"`, `one of "debug", "info"`)},
		{name: "quantity above the maximum", pod: annotated(p + "cpu: '3'"), says: refused("cpu", `"3"`, `a quantity such as 100m or 64Mi, at most 2`)},
		{name: "no quantity", pod: annotated(p + "memory: much"), says: refused("memory", `"much"`, `a quantity such as 100m or 64Mi`)},
		{name: "no port", pod: annotated(p + "port: '0'"), says: refused("port", `"0"`, `a port from 1 to 65535`)},
		{name: "no integer", pod: annotated(p + "replicas: many"), says: refused("replicas", `"many"`, `an integer from 1 to 5`)},
		{name: "no duration", pod: annotated(p + "timeout: '5'"), says: refused("timeout", `"5"`, `a duration such as 90s or 5m`)},
		{name: "structure in a text", pod: annotated(p + `team: 'x", "y'`), says: refused("team", `"x\", \"y"`, `a text of at most 1024 characters that matches "[a-z]+", without control characters`)},
		{name: "empty", pod: annotated(p + "team: ''"), says: refused("team", `""`, `a text of at most 1024 characters that matches "[a-z]+", without control characters`)},
		{
			name: "all at once", pod: annotated(p + "level: x, " + p + "replicas: '0'"),
			says: append(refused("level", `"x"`, `one of "debug", "info"`), refused("replicas", `"0"`, `an integer from 1 to 5`)...),
		},
		{
			name: "not allowed, and left out", pod: annotated(p + "trace: maybe"), reasons: "mesh=invalid-parameter",
			says: []string{`warning: sidecar profile "mesh" is not applied: metadata.annotations[` + p + `trace]: "maybe" is not allowed: allowed is true or false`},
		},
		{
			name: "not allowed on the namespace", namespace: "annotations: {" + p + "level: trace}", pod: annotated(""), reasons: "mesh=refused",
			says: []string{`refused: namespace "shop": metadata.annotations[` + p + `level]: "trace" is not allowed: allowed is one of "debug", "info"`},
		},
		{name: "not allowed on the namespace, but the pod's own is", namespace: "annotations: {" + p + "level: trace}", pod: annotated(p + "level: debug"), want: set(p+"level: debug", tunedWith("info", "debug"))},
		{
			name: "unknown", pod: annotated(p + "cpus: '1'"), reasons: "mesh=refused",
			says: []string{`refused: metadata.annotations[` + p + `cpus]: "cpus" is not a parameter of sidecar profile "mesh" (hint: did you mean "cpu"?)`},
		},
		{name: "unknown on the namespace", namespace: "annotations: {" + p + "cpus: '1'}", pod: annotated(""), want: "spec: " + tunedWith(), says: []string{`warning: the annotation ` + p + `cpus of namespace "shop" has no effect: "cpus" is not a parameter of sidecar profile "mesh"`}},
	}
	for i := range table {
		table[i].profiles = []string{tuned}
	}
	runAll(t, table)
}

// TestParametersOfFewProfiles: what holds without parameters, with one that must
// be given, and in a rollout.
func TestParametersOfFewProfiles(t *testing.T) {
	t.Parallel()
	const (
		plain    = "template: {metadata: {labels: {a: b}}}"
		required = "parameters: [{name: team, type: string}]\ntemplate: {metadata: {labels: {team: '${params.team}'}}}"
	)
	runAll(t, []injection{
		{
			name: "a profile without parameters", profiles: []string{optOut("a", plain)}, pod: annotated("a.sidecar.gatehouse.dev/x: z"), reasons: "a=refused",
			says: []string{`refused: metadata.annotations[a.sidecar.gatehouse.dev/x]: "x" is not a parameter of sidecar profile "a"`},
		},
		{
			name: "a profile that is not applied", profiles: []string{spec("a", "{}", "OptIn")}, pod: annotated("a.sidecar.gatehouse.dev/x: z"),
			reasons: "a=not-asked",
		},
		{
			name: "of another profile", profiles: []string{spec("a", "{}", "OptIn"), optOut("b", plain)}, pod: annotated("a.sidecar.gatehouse.dev/x: z"), reasons: "a=not-asked,b=applied",
			want: "metadata: {labels: {a: b}, annotations: {a.sidecar.gatehouse.dev/x: z}}\nspec: {containers: [{name: app}]}",
		},
		{
			name: "required and missing", profiles: []string{optOut("a", required)}, pod: annotated(""), reasons: "a=refused",
			says: []string{`refused: metadata.annotations[a.sidecar.gatehouse.dev/team]: the parameter is required: allowed is a text of at most 1024 characters, without control characters`},
		},
		{
			name: "required and given", profiles: []string{optOut("a", required)}, pod: annotated("a.sidecar.gatehouse.dev/team: pay"),
			want: "metadata: {annotations: {a.sidecar.gatehouse.dev/team: pay}, labels: {team: pay}}\nspec: {containers: [{name: app}]}",
		},
		{
			name:     "by the name of the profile that is replaced",
			profiles: []string{optOut("a", plain), optOut("b", "rollout: {percent: 100, replaces: a}\n"+required)},
			pod:      annotated("a.sidecar.gatehouse.dev/team: pay"), reasons: "a=replaced,b=applied",
			want: "metadata: {annotations: {a.sidecar.gatehouse.dev/team: pay}, labels: {team: pay}}\nspec: {containers: [{name: app}]}",
		},
		{
			name:     "by the name of the profile that replaces it",
			profiles: []string{optOut("a", plain), optOut("b", "rollout: {percent: 0, replaces: a}\n"+plain)},
			pod:      annotated("b.sidecar.gatehouse.dev/team: pay"), reasons: "a=applied,b=not-in-rollout",
			want: "metadata: {annotations: {b.sidecar.gatehouse.dev/team: pay}, labels: {a: b}}\nspec: {containers: [{name: app}]}",
			says: []string{`warning: metadata.annotations[b.sidecar.gatehouse.dev/team] has no effect: sidecar profile "b" takes the place of "a", and reads the annotations that are for that`},
		},
		{
			name:     "of the other profile of a rollout",
			profiles: []string{optOut("a", plain), optOut("b", "rollout: {percent: 0, replaces: a}\n"+required)},
			pod:      annotated("a.sidecar.gatehouse.dev/team: pay"), reasons: "a=applied,b=not-in-rollout",
			want: "metadata: {annotations: {a.sidecar.gatehouse.dev/team: pay}, labels: {a: b}}\nspec: {containers: [{name: app}]}",
		},
		{
			name:     "of the profile that is replaced",
			profiles: []string{optOut("a", required), optOut("b", "rollout: {percent: 100, replaces: a}\n"+plain)},
			pod:      annotated("a.sidecar.gatehouse.dev/team: pay"), reasons: "a=replaced,b=applied",
			want: "metadata: {annotations: {a.sidecar.gatehouse.dev/team: pay}, labels: {a: b}}\nspec: {containers: [{name: app}]}",
		},
		{
			name:     "of neither profile of a rollout",
			profiles: []string{optOut("a", required), optOut("b", "rollout: {percent: 100, replaces: a}\n"+plain)},
			pod:      annotated("a.sidecar.gatehouse.dev/size: pay"), reasons: "a=replaced,b=refused",
			says: []string{`refused: metadata.annotations[a.sidecar.gatehouse.dev/size]: "size" is not a parameter of sidecar profile "b"`},
		},
		{
			name: "a text that no label can have", profiles: []string{optOut("a", required)}, pod: annotated("a.sidecar.gatehouse.dev/team: 'a b'"),
			reasons: "a=refused",
			says:    []string{`refused: sidecar profile "a" would set the label team to "a b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`},
		},
		{
			name: "names that are meant for Gatehouse and say nothing to it", profiles: []string{optOut("a", required)},
			pod:  "metadata: {labels: {sidecar.gatehouse.dev/inject: 'false', a.sidecar.gatehouse.dev/team: x}, annotations: {a.sidecar.gatehouse.dev/team: x, sidecar.gatehouse.dev/injct: 'false', sidecar.gatehouse.dev/other: x, gatehouse.dev/inject: 'false', example.com/inject: 'false'}}\nspec: {containers: [{name: app}]}",
			want: "metadata: {labels: {sidecar.gatehouse.dev/inject: 'false', a.sidecar.gatehouse.dev/team: x, team: x}, annotations: {a.sidecar.gatehouse.dev/team: x, sidecar.gatehouse.dev/injct: 'false', sidecar.gatehouse.dev/other: x, gatehouse.dev/inject: 'false', example.com/inject: 'false'}}\nspec: {containers: [{name: app}]}",
			says: []string{
				"warning: metadata.annotations[gatehouse.dev/inject] has no effect: it is not known (hint: did you mean sidecar.gatehouse.dev/inject?)",
				"warning: metadata.annotations[sidecar.gatehouse.dev/injct] has no effect: it is not known (hint: did you mean sidecar.gatehouse.dev/inject?)",
				"warning: metadata.annotations[sidecar.gatehouse.dev/other] has no effect: it is not known",
				"warning: metadata.labels[a.sidecar.gatehouse.dev/team] has no effect: it is a label (hint: make it an annotation)",
				"warning: metadata.labels[sidecar.gatehouse.dev/inject] has no effect: it is a label (hint: make it an annotation)",
			},
		},
		{
			name:     "an expression that fails",
			profiles: []string{optOut("a", "template: {metadata: {labels: {team: '${pod.metadata.labels[\"team\"]}'}}}")}, pod: "spec: {}", reasons: "a=refused",
			says: []string{`refused: sidecar profile "a" cannot be rendered for this pod: the profile's spec.template.metadata.labels.team: "pod.metadata.labels[\"team\"]" fails: no such key: metadata`},
		},
		{
			name:     "an expression that fails, and is skipped",
			profiles: []string{optOut("a", "onConflict: Skip\ntemplate: {metadata: {labels: {team: '${pod.metadata.labels[\"team\"]}'}}}")}, pod: "spec: {}", reasons: "a=conflict",
			says: []string{`warning: sidecar profile "a" is not applied: sidecar profile "a" cannot be rendered for this pod: the profile's spec.template.metadata.labels.team: "pod.metadata.labels[\"team\"]" fails: no such key: metadata`},
		},
	})
}

// TestPresets: values that are kept apart from the profile. Missing ones are a
// warning when the profile is loaded, and no answer when a pod is created.
func TestPresets(t *testing.T) {
	t.Parallel()
	const mesh = `
presets: [{name: mesh, configMap: {namespace: infra, name: mesh}}]
template: {spec: {initContainers: [{name: mesh, image: "${presets.mesh[\"image\"]}", restartPolicy: Always, startupProbe: {exec: {command: [ok]}}}]}}`
	const unknown = `could not tell: sidecar profile "mesh": preset "mesh": there is no ConfigMap "mesh" in namespace "infra"`
	for _, tc := range []struct {
		name       string
		configMaps map[string]map[string]string
		reasons    string
		says       string
		loading    string
	}{
		{name: "there", configMaps: map[string]map[string]string{"infra/mesh": {"image": "example/mesh:1"}}, reasons: "mesh=applied"},
		{
			name: "missing", reasons: "mesh=unknown", says: unknown,
			loading: `warning: test.yaml: SidecarProfile/mesh: spec.presets[0].configMap: there is no ConfigMap "mesh" in namespace "infra": pods that ask for the profile are refused until there is, and others are created without it (hint: put the ConfigMap beside the profile)`,
		},
		{name: "without the key", configMaps: map[string]map[string]string{"infra/mesh": {}}, reasons: "mesh=refused", says: `refused: sidecar profile "mesh" cannot be rendered for this pod: `},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cluster := shop(t, "")
			cluster.configMaps = tc.configMaps
			set := compileIn(t, cluster, optOut("mesh", mesh))
			check(t, "when loaded", set.Warnings().Error(), tc.loading)
			d, patched := inject(t, set, "spec: {containers: [{name: app}]}")
			check(t, "reasons", reasons(&d), tc.reasons)
			if got := said(&d); !strings.HasPrefix(got, tc.says) || tc.says == "" && got != "" {
				t.Errorf("said: got %s, want %s", got, tc.says)
			}
			if tc.says == "" {
				checkPod(t, patched, "spec: {containers: [{name: app}], initContainers: ["+strings.Replace(native("mesh", ""), "example/mesh", "'example/mesh:1'", 1)+"]}")
			}
		})
	}
	t.Run("nobody knows", func(t *testing.T) {
		t.Parallel()
		set, err := sidecar.Compile(sidecar.Spec{Profiles: []sidecar.Profile{profile(t, "mesh.yaml", optOut("mesh", mesh))}})
		if err != nil || len(set.Warnings()) > 0 {
			t.Fatal(err, set.Warnings())
		}
		d, _ := inject(t, set, "spec: {}")
		check(t, "reasons", reasons(&d), "mesh=unknown")
	})
}
