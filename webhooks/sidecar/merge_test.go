package sidecar_test

import "testing"

// merged returns a case about what a template says of the pod's spec.
func merged(name, template, pod, want string, says ...string) injection {
	tc := injection{name: name, profiles: []string{optOut("a", "template: {spec: "+template+"}")}, pod: "spec: " + pod, says: says}
	if want != "" {
		tc.want = "spec: " + want
	}
	return tc
}

// TestMergeOfPods goes through the rules by which a template's fields are merged
// with a pod's: what the pod says stays and stands first.
func TestMergeOfPods(t *testing.T) {
	t.Parallel()
	const spread = "{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}"
	runAll(t, []injection{
		merged("a field that is not there", "{runtimeClassName: high}", "{}", "{runtimeClassName: high}"),
		merged("a field that is null", "{runtimeClassName: high}", "{runtimeClassName: null}", "{runtimeClassName: high}"),
		merged("a field that is there", "{runtimeClassName: high}", "{runtimeClassName: high}", ""),
		merged("null says nothing", "{runtimeClassName: null, nodeSelector: {a: b}}", "{runtimeClassName: low}", "{runtimeClassName: low, nodeSelector: {a: b}}"),
		merged("an object that is not there", "{nodeSelector: {a: b}}", "{}", "{nodeSelector: {a: b}}"),
		merged("an object that is null", "{nodeSelector: {a: b}}", "{nodeSelector: null}", "{nodeSelector: {a: b}}"),
		merged("an object that is empty", "{nodeSelector: {a: b}}", "{nodeSelector: {}}", "{nodeSelector: {a: b}}"),
		merged("an object beside others", "{nodeSelector: {a: b, c: d}}", "{nodeSelector: {z: w, c: d}}", "{nodeSelector: {z: w, c: d, a: b}}"),
		merged("a name that needs an escape", "{nodeSelector: {example.com/a: c}}", "{nodeSelector: {}}", "{nodeSelector: {example.com/a: c}}"),

		merged("the API server's defaults count for nothing",
			"{terminationGracePeriodSeconds: 60, dnsPolicy: Default, enableServiceLinks: false, schedulerName: mine, serviceAccountName: x, serviceAccount: x, restartPolicy: OnFailure}",
			"{terminationGracePeriodSeconds: 30, dnsPolicy: ClusterFirst, enableServiceLinks: true, schedulerName: default-scheduler, serviceAccountName: default, serviceAccount: default, restartPolicy: Always}",
			"{terminationGracePeriodSeconds: 60, dnsPolicy: Default, enableServiceLinks: false, schedulerName: mine, serviceAccountName: x, serviceAccount: x, restartPolicy: OnFailure}"),
		merged("a default that the profile says too", "{terminationGracePeriodSeconds: 30, nodeSelector: {a: b}}", "{terminationGracePeriodSeconds: 30}", "{terminationGracePeriodSeconds: 30, nodeSelector: {a: b}}"),

		merged("pull secrets", "{imagePullSecrets: [{name: a}, {name: b}]}", "{imagePullSecrets: [{name: c}, {name: b}]}", "{imagePullSecrets: [{name: c}, {name: b}, {name: a}]}"),
		merged("tolerations", "{tolerations: [{key: a, operator: Exists}, {key: b, effect: NoExecute}]}", "{tolerations: [{effect: NoExecute, key: b}, {key: a, operator: Exists, effect: NoSchedule}]}",
			"{tolerations: [{effect: NoExecute, key: b}, {key: a, operator: Exists, effect: NoSchedule}, {key: a, operator: Exists}]}"),
		merged("tolerations that are not there", "{tolerations: [{key: a, value: 'x/y~z&w=v'}]}", "{tolerations: null}", "{tolerations: [{key: a, value: 'x/y~z&w=v'}]}"),
		merged("host aliases", "{hostAliases: [{ip: 10.0.0.1, hostnames: [a, b]}, {ip: 10.0.0.2, hostnames: [c]}]}", "{hostAliases: [{ip: 10.0.0.1, hostnames: [x, b]}]}",
			"{hostAliases: [{ip: 10.0.0.1, hostnames: [x, b, a]}, {ip: 10.0.0.2, hostnames: [c]}]}"),
		merged("DNS", "{dnsConfig: {nameservers: [1.1.1.1], searches: [a, b], options: [{name: ndots, value: '2'}, {name: edns0}]}}", "{dnsConfig: {searches: [b], options: [{name: ndots, value: '2'}]}}",
			"{dnsConfig: {nameservers: [1.1.1.1], searches: [b, a], options: [{name: ndots, value: '2'}, {name: edns0}]}}"),
		merged("topology", "{topologySpreadConstraints: ["+spread+", {topologyKey: zone, maxSkew: 2, whenUnsatisfiable: ScheduleAnyway}]}", "{topologySpreadConstraints: ["+spread+"]}",
			"{topologySpreadConstraints: ["+spread+", {topologyKey: zone, maxSkew: 2, whenUnsatisfiable: ScheduleAnyway}]}"),
		merged("readiness and scheduling gates", "{readinessGates: [{conditionType: a}], schedulingGates: [{name: a}]}", "{readinessGates: [{conditionType: b}], schedulingGates: [{name: b}]}",
			"{readinessGates: [{conditionType: b}, {conditionType: a}], schedulingGates: [{name: b}, {name: a}]}"),
		merged("resource claims", "{resourceClaims: [{name: gpu, resourceClaimName: x}]}", "{resourceClaims: [{name: nic, resourceClaimName: w}]}", "{resourceClaims: [{name: nic, resourceClaimName: w}, {name: gpu, resourceClaimName: x}]}"),
		merged("the pod's security context", "{securityContext: {runAsNonRoot: true, fsGroup: 5, supplementalGroups: [7, 8], sysctls: [{name: a, value: b}]}}", "{securityContext: {fsGroup: 5, supplementalGroups: [8]}}",
			"{securityContext: {fsGroup: 5, supplementalGroups: [8, 7], runAsNonRoot: true, sysctls: [{name: a, value: b}]}}"),
		merged("affinity", "{affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: a}}]}, nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 2, preference: {}}]}}}",
			"{affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 3, podAffinityTerm: {topologyKey: b}}]}}}",
			"{affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 3, podAffinityTerm: {topologyKey: b}}, {weight: 1, podAffinityTerm: {topologyKey: a}}]}, nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 2, preference: {}}]}}}"),
		merged("the terms that a pod's node must meet are not widened",
			"{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}}",
			"{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: b, operator: Exists}]}]}}}}", "",
			`refused: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: sidecar profile "a": the pod has another list, and the profile says another list (hint: decline the profile with the annotation sidecar.gatehouse.dev/inject: "-a")`),

		merged("unknown fields stay", "{nodeSelector: {a: b}, tolerations: [{key: a}]}", "{future: {x: [1.50, null]}, tolerations: [{key: b, future: 1}]}", "{future: {x: [1.50, null]}, tolerations: [{key: b, future: 1}, {key: a}], nodeSelector: {a: b}}"),
	})
}

// labelled returns a case about what a template says of labels and annotations.
func labelled(name, template, pod, want string, says ...string) injection {
	tc := injection{name: name, profiles: []string{optOut("a", "template: {metadata: "+template+"}")}, pod: "metadata: " + pod, says: says}
	if want != "" {
		tc.want = "metadata: " + want + "\nspec: {}"
	}
	return tc
}

func TestMergeOfMetadata(t *testing.T) {
	t.Parallel()
	const (
		text = "{labels: {a: b, c: d}, annotations: {e: f, example.com/g: h}}"
		hint = ` (hint: decline the profile with the annotation sidecar.gatehouse.dev/inject: "-a")`
	)
	runAll(t, []injection{
		labelled("nothing there", text, "{}", text),
		labelled("null", text, "null", text),
		labelled("null inside", text, "{labels: null, annotations: null}", text),
		labelled("empty inside", text, "{labels: {}, annotations: {}}", text),
		labelled("others there", text, "{name: x, labels: {z: w}, annotations: {z: w}}", "{name: x, labels: {z: w, a: b, c: d}, annotations: {z: w, e: f, example.com/g: h}}"),
		labelled("some of it there", text, "{labels: {a: b}, annotations: {e: f}}", text),
		labelled("all of it there", text, text, ""),
		labelled("another label", text, "{labels: {a: x}}", "", `refused: metadata.labels.a: sidecar profile "a": the pod has "x", and the profile says "b"`+hint),
		labelled("other annotations", text, "{annotations: {e: x, example.com/g: i}}", "",
			`refused: metadata.annotations.e: sidecar profile "a": the pod has "x", and the profile says "f"`+hint,
			`refused: metadata.annotations[example.com/g]: sidecar profile "a": the pod has "i", and the profile says "h"`+hint),
		labelled("labels alone", "{labels: {a: b}}", "{}", "{labels: {a: b}}"),
	})
}

// TestTwoProfilesMerge: the second sees what the first has done.
func TestTwoProfilesMerge(t *testing.T) {
	t.Parallel()
	a := optOut("a", "template: {metadata: {labels: {x: a}}, spec: {tolerations: [{key: a}], nodeSelector: {a: a}}}")
	b := optOut("b", "template: {metadata: {labels: {y: b}}, spec: {tolerations: [{key: a}, {key: b}], nodeSelector: {b: b}}}")
	clash := optOut("clash", "onConflict: Skip\ntemplate: {metadata: {labels: {z: z, x: clash}}, spec: {tolerations: [{key: clash}]}}")
	runAll(t, []injection{
		{
			name: "into nothing", profiles: []string{a, b}, pod: "{}", reasons: "a=applied,b=applied",
			want: "metadata: {labels: {x: a, y: b}}\nspec: {tolerations: [{key: a}, {key: b}], nodeSelector: {a: a, b: b}}",
		},
		{
			name: "into something", profiles: []string{a, b}, pod: "metadata: {labels: {l: m}}\nspec: {tolerations: [{key: c}], nodeSelector: {c: c}}", reasons: "a=applied,b=applied",
			want: "metadata: {labels: {l: m, x: a, y: b}}\nspec: {tolerations: [{key: c}, {key: a}, {key: b}], nodeSelector: {c: c, a: a, b: b}}",
		},
		{
			name: "one that is left out leaves nothing", profiles: []string{a, clash, b}, pod: "{}", reasons: "a=applied,b=applied,clash=conflict",
			want: "metadata: {labels: {x: a, y: b}}\nspec: {tolerations: [{key: a}, {key: b}], nodeSelector: {a: a, b: b}}",
			says: []string{`warning: sidecar profile "clash" is not applied: metadata.labels.x: sidecar profile "clash": the pod has "a", and the profile says "clash"`},
		},
	})
}

// TestProfileThatIsLeftOutLeavesNothing: what it has done until a conflict shows
// is undone, however far it has come.
func TestProfileThatIsLeftOutLeavesNothing(t *testing.T) {
	t.Parallel()
	skipped := optOut("b", `onConflict: Skip
template: {metadata: {labels: {b: b}}, spec: {tolerations: [{key: b}], volumes: [{name: b, emptyDir: {}}], initContainers: [`+native("b", "")+`]}}
share: [{container: b, volumeMounts: true}]
appContainers:
- {template: {env: [{name: B, value: b}]}}
- {template: {env: [{name: C, value: c}], volumeMounts: [{name: b, mountPath: /taken}]}}`)
	app := optOut("a", "appContainers: [{template: {env: [{name: A, value: a}]}}, {template: {env: [{name: AA, value: a}]}}]")
	last := optOut("c", "template: {metadata: {labels: {c: c}}, spec: {tolerations: [{key: c}], initContainers: ["+native("c", "")+"]}}")
	d, patched := inject(t, compile(t, app, skipped, last), "spec: {containers: [{name: app, volumeMounts: [{name: x, mountPath: /taken}]}]}")
	check(t, "reasons", reasons(&d), "a=applied,b=conflict,c=applied")
	checkPod(t, patched, "metadata: {labels: {c: c}}\nspec: {tolerations: [{key: c}], initContainers: ["+native("c", "")+"], containers: [{name: app, volumeMounts: [{name: x, mountPath: /taken}], env: [{name: A, value: a}, {name: AA, value: a}]}]}")
}
