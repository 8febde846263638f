package podvalidity

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// part is what a row of TestBrokenProfiles breaks.
type part int

const (
	// native, plain and container are fields of a native sidecar, an init container and a container of the template.
	native part = iota
	plain
	container
	// volume is a volume of the template, without its name.
	volume
	// spec are fields of the template's spec.
	spec
	// app is what is added to the pod's own containers.
	app
	labels
	annotations
	// sharing are fields of a native sidecar that shares the mounts of the pod's own containers.
	sharing
)

// profile is a profile that says this in that part, and else nothing that is wrong.
func (p part) profile(text string) string {
	side := func(list, more string) string {
		return fmt.Sprintf("{spec: {%s: [{name: side, image: example/side, %s%s}], volumes: [{name: scratch, emptyDir: {}}, {name: block, persistentVolumeClaim: {claimName: block}}]}}", list, more, text)
	}
	template, appContainers, share := "{}", "[]", "[]"
	switch p {
	case native:
		more := "restartPolicy: Always, "
		if strings.Contains(text, "restartPolicy") {
			more = ""
		}
		template = side("initContainers", more)
	case plain:
		template = side("initContainers", "")
	case container:
		template = side("containers", "")
	case volume:
		template = fmt.Sprintf("{spec: {volumes: [{name: side, %s}]}}", text)
	case spec:
		template = fmt.Sprintf("{spec: {%s}}", text)
	case app:
		template = "{spec: {volumes: [{name: scratch, emptyDir: {}}, {name: block, persistentVolumeClaim: {claimName: block}}]}}"
		appContainers = fmt.Sprintf("[{template: {%s}}]", text)
	case sharing:
		template = side("initContainers", "restartPolicy: Always, ")
		share = "[{container: side, volumeMounts: true}]"
	case labels:
		template = fmt.Sprintf("{metadata: {labels: {%s}}}", text)
	case annotations:
		template = fmt.Sprintf("{metadata: {annotations: {%s}}}", text)
	}
	return fmt.Sprintf("metadata: {name: broken}\nspec:\n  injection: OptOut\n  template: %s\n  appContainers: %s\n  share: %s\n", template, appContainers, share)
}

// pod is the pod that the profile would make of one that says nothing, put together without any of our code.
func pod(t *testing.T, profile string) []byte {
	t.Helper()
	var p struct {
		Spec struct {
			Template struct {
				Metadata map[string]any
				Spec     map[string]any
			}
			AppContainers []struct{ Template map[string]any }
		}
	}
	err := yaml.Unmarshal([]byte(profile), &p)
	if err != nil {
		t.Fatalf("%v\n%s", err, profile)
	}
	metadata, s := p.Spec.Template.Metadata, p.Spec.Template.Spec
	if metadata == nil {
		metadata = map[string]any{}
	}
	if s == nil {
		s = map[string]any{}
	}
	metadata["name"] = "checkout"
	own := map[string]any{"name": "app", "image": "example/app"}
	for _, a := range p.Spec.AppContainers {
		maps.Copy(own, a.Template)
	}
	more, _ := s["containers"].([]any)
	s["containers"] = append([]any{own}, more...)
	if s["serviceAccountName"] == nil {
		s["serviceAccountName"] = serviceAccount
	}
	text, err := yaml.Marshal(map[string]any{"metadata": metadata, "spec": s})
	if err != nil {
		t.Fatal(err)
	}
	object, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// TestBrokenProfiles wants profiles with which no pod would be valid to be refused when they are loaded. Every row is
// wrong in one way, which the API server's validation confirms, and the finding names the field.
func TestBrokenProfiles(t *testing.T) {
	t.Parallel()
	validator := newValidator(t)
	for _, row := range brokenProfiles() {
		t.Run(row.name, func(t *testing.T) {
			profile := row.in.profile(row.text)
			if errs := validator.Errors(pod(t, profile)); len(errs) == 0 {
				t.Errorf("the API server accepts it:\n%s", profile)
			} else {
				t.Logf("the API server says %q", errs)
			}
			_, err := compile(profiles(t, "profile.yaml", profile))
			var found diagnostic.List
			if !errors.As(err, &found) {
				t.Fatalf("got %v:\n%s", err, profile)
			}
			named := false
			for _, f := range found {
				named = named || f.Severity == diagnostic.Error && strings.HasSuffix(f.Field, row.field)
			}
			if !named {
				t.Errorf("no finding names %s: %v", row.field, found)
			}
		})
	}
}

// TestSoundProfiles is the other side: what the API server accepts is not refused.
func TestSoundProfiles(t *testing.T) {
	t.Parallel()
	validator := newValidator(t)
	for _, row := range soundProfiles() {
		t.Run(row.name, func(t *testing.T) {
			profile := row.in.profile(row.text)
			if errs := validator.Errors(pod(t, profile)); len(errs) > 0 {
				t.Errorf("the API server says %q:\n%s", errs, profile)
			}
			_, err := compile(profiles(t, "profile.yaml", profile))
			if err != nil {
				t.Errorf("%v\n%s", err, profile)
			}
		})
	}
}

// row is a profile in which one thing is said, and the field that a diagnostic about it names.
type row struct {
	name  string
	in    part
	text  string
	field string
}

func brokenProfiles() []row {
	return []row{
		{"env: name", native, `env: [{name: "a=b", value: "1"}]`, ".env[0].name"},
		{"env: no name", native, `env: [{value: "1"}]`, ".env[0].name"},
		{"env: value and valueFrom", native, `env: [{name: A, value: "1", valueFrom: {fieldRef: {fieldPath: metadata.name}}}]`, ".env[0]"},
		{"env: no source", native, `env: [{name: A, valueFrom: {}}]`, ".env[0].valueFrom"},
		{"env: two sources", native, `env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}, resourceFieldRef: {resource: limits.cpu}}}]`, ".env[0].valueFrom"},
		{"env: unknown field", native, `env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.bogus}}}]`, ".fieldRef.fieldPath"},
		{"env: field of no pod", native, `env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]`, ".fieldRef.fieldPath"},
		{"env: label of no name", native, `env: [{name: A, valueFrom: {fieldRef: {fieldPath: "metadata.labels['-']"}}}]`, ".fieldRef.fieldPath"},
		{"env: unknown resource", native, `env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.bogus}}}]`, ".resourceFieldRef.resource"},
		{"env: key of a secret", native, `env: [{name: A, valueFrom: {secretKeyRef: {name: s}}}]`, ".secretKeyRef.key"},
		{"env: bad key", native, `env: [{name: A, valueFrom: {configMapKeyRef: {name: s, key: "a b"}}}]`, ".configMapKeyRef.key"},
		{"env: no source in envFrom", native, `envFrom: [{prefix: A}]`, ".envFrom[0]"},
		{"env: two sources in envFrom", native, `envFrom: [{configMapRef: {name: a}, secretRef: {name: a}}]`, ".envFrom[0]"},
		{"env: prefix", native, `envFrom: [{prefix: "a=", configMapRef: {name: a}}]`, ".envFrom[0].prefix"},
		{"env: ConfigMap without a name", native, `envFrom: [{configMapRef: {}}]`, ".configMapRef.name"},

		{"resources: request over limit", native, `resources: {requests: {cpu: 2}, limits: {cpu: 1}}`, ".resources.requests.cpu"},
		{"resources: negative request", native, `resources: {requests: {cpu: -1}}`, ".resources.requests.cpu"},
		{"resources: negative limit", native, `resources: {limits: {cpu: -1}}`, ".resources.limits.cpu"},
		{"resources: unknown name", native, `resources: {requests: {bogus: 1}}`, ".resources.requests.bogus"},
		{"resources: bad name", native, `resources: {limits: {"example.com/a b": 1}}`, ".resources.limits[example.com/a b]"},
		{"resources: extended resource without limit", native, `resources: {requests: {example.com/gpu: 1}}`, ".resources.requests[example.com/gpu]"},
		{"resources: extended resource over-committed", native, `resources: {requests: {example.com/gpu: 1}, limits: {example.com/gpu: 2}}`, ".resources.requests[example.com/gpu]"},
		{"resources: part of an extended resource", native, `resources: {limits: {example.com/gpu: 500m}}`, ".resources.limits[example.com/gpu]"},
		{"resources: huge pages alone", native, `resources: {limits: {hugepages-2Mi: 2Mi}}`, ".resources"},
		{"app: huge pages alone", app, `resources: {limits: {hugepages-2Mi: 2Mi}}`, ".resources"},
		{"DNS without servers", spec, `dnsPolicy: None`, ".dnsConfig.nameservers"},
		{"resources: huge pages without limit", native, `resources: {requests: {hugepages-2Mi: 2Mi, cpu: 1}}`, ".resources.requests.hugepages-2Mi"},
		{"resources: claim of no pod", native, `resources: {claims: [{name: gpu}]}`, ".resources.claims[0].name"},

		{"probe: no handler", native, `startupProbe: {periodSeconds: 1}`, ".startupProbe"},
		{"probe: two handlers", native, `startupProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}`, ".startupProbe"},
		{"probe: no command", native, `startupProbe: {exec: {}}`, ".startupProbe.exec.command"},
		{"probe: port of no name", native, `startupProbe: {httpGet: {port: Bad_Port}}`, ".startupProbe.httpGet.port"},
		{"probe: no port", native, `startupProbe: {httpGet: {path: /}}`, ".startupProbe.httpGet.port"},
		{"probe: scheme", native, `startupProbe: {httpGet: {port: 80, scheme: FTP}}`, ".startupProbe.httpGet.scheme"},
		{"probe: header", native, `startupProbe: {httpGet: {port: 80, httpHeaders: [{name: "a b", value: c}]}}`, ".startupProbe.httpGet.httpHeaders[0].name"},
		{"probe: port too high", native, `startupProbe: {tcpSocket: {port: 70000}}`, ".startupProbe.tcpSocket.port"},
		{"probe: gRPC port", native, `startupProbe: {grpc: {port: 0}}`, ".startupProbe.grpc.port"},
		{"probe: negative period", native, `startupProbe: {exec: {command: [a]}, periodSeconds: -1}`, ".startupProbe.periodSeconds"},
		{"probe: negative delay", native, `livenessProbe: {exec: {command: [a]}, initialDelaySeconds: -1}`, ".livenessProbe.initialDelaySeconds"},
		{"probe: success of liveness", native, `livenessProbe: {exec: {command: [a]}, successThreshold: 2}`, ".livenessProbe.successThreshold"},
		{"probe: grace period of readiness", native, `readinessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 5}`, ".readinessProbe.terminationGracePeriodSeconds"},
		{"probe: grace period of nothing", native, `livenessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 0}`, ".livenessProbe.terminationGracePeriodSeconds"},
		{"probe: of an init container", plain, `startupProbe: {exec: {command: [a]}}`, ".startupProbe"},
		{"lifecycle: in an init container", plain, `lifecycle: {preStop: {exec: {command: [a]}}}`, ".lifecycle"},
		{"lifecycle: no handler", native, `lifecycle: {preStop: {}}`, ".lifecycle.preStop"},
		{"lifecycle: two handlers", container, `lifecycle: {postStart: {exec: {command: [a]}, httpGet: {port: 80}}}`, ".lifecycle.postStart"},
		{"lifecycle: no command", container, `lifecycle: {postStart: {exec: {}}}`, ".lifecycle.postStart.exec.command"},
		{"lifecycle: negative sleep", container, `lifecycle: {preStop: {sleep: {seconds: -1}}}`, ".lifecycle.preStop.sleep.seconds"},

		{"ports: name in capitals", native, `ports: [{name: HTTP, containerPort: 80}]`, ".ports[0].name"},
		{"ports: long name", native, `ports: [{name: this-name-is-long, containerPort: 80}]`, ".ports[0].name"},
		{"ports: name twice", native, `ports: [{name: a, containerPort: 80}, {name: a, containerPort: 81}]`, ".ports[1].name"},
		{"ports: number", native, `ports: [{containerPort: 70000}]`, ".ports[0].containerPort"},
		{"ports: protocol", native, `ports: [{containerPort: 80, protocol: tcp}]`, ".ports[0].protocol"},

		{"mounts: path twice", native, `volumeMounts: [{name: scratch, mountPath: /a}, {name: scratch, mountPath: /a}]`, ".volumeMounts[1].mountPath"},
		{"mounts: no path", native, `volumeMounts: [{name: scratch}]`, ".volumeMounts[0].mountPath"},
		{"mounts: unknown volume", native, `volumeMounts: [{name: other, mountPath: /a}]`, ".volumeMounts[0].name"},
		{"mounts: propagation", native, `volumeMounts: [{name: scratch, mountPath: /a, mountPropagation: Sideways}]`, ".volumeMounts[0].mountPropagation"},
		{"mounts: propagation without privileges", native, `volumeMounts: [{name: scratch, mountPath: /a, mountPropagation: Bidirectional}]`, ".volumeMounts[0].mountPropagation"},
		{"mounts: sub path", native, `volumeMounts: [{name: scratch, mountPath: /a, subPath: ../a}]`, ".volumeMounts[0].subPath"},
		{"mounts: two sub paths", native, `volumeMounts: [{name: scratch, mountPath: /a, subPath: a, subPathExpr: b}]`, ".volumeMounts[0].subPathExpr"},
		{"mounts: recursively read-only, but not read-only", native, `volumeMounts: [{name: scratch, mountPath: /a, recursiveReadOnly: Enabled}]`, ".volumeMounts[0].recursiveReadOnly"},
		{"mounts: unknown recursion", native, `volumeMounts: [{name: scratch, mountPath: /a, readOnly: true, recursiveReadOnly: Sometimes}]`, ".volumeMounts[0].recursiveReadOnly"},
		{"devices: of a file system", native, `volumeDevices: [{name: scratch, devicePath: /dev/a}]`, ".volumeDevices[0].name"},
		{"devices: path of a mount", native, `volumeMounts: [{name: scratch, mountPath: /a}], volumeDevices: [{name: block, devicePath: /a}]`, ".volumeDevices[0].devicePath"},
		{"devices: path twice", native, `volumeDevices: [{name: block, devicePath: /a}, {name: block, devicePath: /a}]`, ".volumeDevices[1].devicePath"},
		{"devices: no path", native, `volumeDevices: [{name: block}]`, ".volumeDevices[0].devicePath"},
		{"devices: mounted too", native, `volumeMounts: [{name: block, mountPath: /a}], volumeDevices: [{name: block, devicePath: /b}]`, ".volumeDevices[0].name"},

		{"container: pull policy", native, `imagePullPolicy: Often`, ".imagePullPolicy"},
		{"container: space in the image", spec, `initContainers: [{name: side, image: " example/side"}]`, ".image"},
		{"container: name", spec, `initContainers: [{name: Side, image: example/side}]`, ".initContainers[0].name"},
		{"container: message policy", native, `terminationMessagePolicy: Never`, ".terminationMessagePolicy"},
		{"container: restart policy", native, `restartPolicy: Sometimes`, ".restartPolicy"},
		{"container: resize policy", native, `resizePolicy: [{resourceName: cpu, restartPolicy: Maybe}]`, ".resizePolicy[0].restartPolicy"},
		{"container: resize of something else", native, `resizePolicy: [{resourceName: disk, restartPolicy: NotRequired}]`, ".resizePolicy[0].resourceName"},

		{"security: privileged without escalation", native, `securityContext: {privileged: true, allowPrivilegeEscalation: false}`, ".securityContext.allowPrivilegeEscalation"},
		{"security: capability without escalation", native, `securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}, allowPrivilegeEscalation: false}`, ".securityContext.allowPrivilegeEscalation"},
		{"security: negative user", native, `securityContext: {runAsUser: -1}`, ".securityContext.runAsUser"},
		{"security: negative group", native, `securityContext: {runAsGroup: -1}`, ".securityContext.runAsGroup"},
		{"security: seccomp type", native, `securityContext: {seccompProfile: {type: Strict}}`, ".securityContext.seccompProfile.type"},
		{"security: seccomp without file", native, `securityContext: {seccompProfile: {type: Localhost}}`, ".securityContext.seccompProfile.localhostProfile"},
		{"security: seccomp with a file", native, `securityContext: {seccompProfile: {type: RuntimeDefault, localhostProfile: a}}`, ".securityContext.seccompProfile.localhostProfile"},
		{"security: AppArmor type", native, `securityContext: {appArmorProfile: {type: Strict}}`, ".securityContext.appArmorProfile.type"},
		{"security: AppArmor without profile", native, `securityContext: {appArmorProfile: {type: Localhost}}`, ".securityContext.appArmorProfile.localhostProfile"},
		{"security: proc mount", native, `securityContext: {procMount: Half}`, ".securityContext.procMount"},

		{"volume: two sources", volume, `emptyDir: {}, hostPath: {path: /a}`, ".volumes[0]"},
		{"volume: secret without a name", volume, `secret: {}`, ".secret.secretName"},
		{"volume: mode", volume, `secret: {secretName: a, defaultMode: 4096}`, ".secret.defaultMode"},
		{"volume: ConfigMap without a name", volume, `configMap: {}`, ".configMap.name"},
		{"volume: item without a path", volume, `configMap: {name: a, items: [{key: a}]}`, ".configMap.items[0].path"},
		{"volume: item without a key", volume, `configMap: {name: a, items: [{path: a}]}`, ".configMap.items[0].key"},
		{"volume: path upwards", volume, `configMap: {name: a, items: [{key: a, path: ../a}]}`, ".configMap.items[0].path"},
		{"volume: host path without a path", volume, `hostPath: {}`, ".hostPath.path"},
		{"volume: host path upwards", volume, `hostPath: {path: /a/../b}`, ".hostPath.path"},
		{"volume: host path type", volume, `hostPath: {path: /a, type: Folder}`, ".hostPath.type"},
		{"volume: negative size", volume, `emptyDir: {sizeLimit: -1}`, ".emptyDir.sizeLimit"},
		{"volume: token without a path", volume, `projected: {sources: [{serviceAccountToken: {audience: a}}]}`, ".serviceAccountToken.path"},
		{"volume: short token", volume, `projected: {sources: [{serviceAccountToken: {path: a, expirationSeconds: 60}}]}`, ".serviceAccountToken.expirationSeconds"},
		{"volume: two projected sources", volume, `projected: {sources: [{secret: {name: a}, configMap: {name: a}}]}`, ".projected.sources[0]"},
		{"volume: projected secret without a name", volume, `projected: {sources: [{secret: {}}]}`, ".projected.sources[0].secret.name"},
		{"volume: downward API without a field", volume, `downwardAPI: {items: [{path: a}]}`, ".downwardAPI.items[0]"},
		{"volume: downward API of another field", volume, `downwardAPI: {items: [{path: a, fieldRef: {fieldPath: status.podIP}}]}`, ".fieldRef.fieldPath"},
		{"volume: downward API of no container", volume, `downwardAPI: {items: [{path: a, resourceFieldRef: {resource: limits.cpu}}]}`, ".resourceFieldRef.containerName"},
		{"volume: claim without a name", volume, `persistentVolumeClaim: {}`, ".persistentVolumeClaim.claimName"},
		{"volume: CSI without a driver", volume, `csi: {readOnly: true}`, ".csi.driver"},
		{"volume: NFS without a server", volume, `nfs: {path: /a}`, ".nfs.server"},

		{"spec: DNS policy", spec, `dnsPolicy: Sometimes`, ".dnsPolicy"},
		{"spec: DNS server", spec, `dnsConfig: {nameservers: [dns.example]}`, ".dnsConfig.nameservers[0]"},
		{"spec: four DNS servers", spec, `dnsConfig: {nameservers: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4]}`, ".dnsConfig.nameservers"},
		{"spec: DNS search", spec, `dnsConfig: {searches: ["a b"]}`, ".dnsConfig.searches[0]"},
		{"spec: DNS option", spec, `dnsConfig: {options: [{value: a}]}`, ".dnsConfig.options[0].name"},
		{"spec: toleration operator", spec, `tolerations: [{key: a, operator: Sometimes}]`, ".tolerations[0].operator"},
		{"spec: toleration value", spec, `tolerations: [{key: a, operator: Exists, value: b}]`, ".tolerations[0].value"},
		{"spec: toleration without a key", spec, `tolerations: [{operator: Equal, value: b}]`, ".tolerations[0].operator"},
		{"spec: toleration key", spec, `tolerations: [{key: "a b", operator: Exists}]`, ".tolerations[0].key"},
		{"spec: toleration effect", spec, `tolerations: [{key: a, operator: Exists, effect: Never}]`, ".tolerations[0].effect"},
		{"spec: toleration seconds", spec, `tolerations: [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 5}]`, ".tolerations[0].effect"},
		{"spec: restart policy", spec, `restartPolicy: Sometimes`, ".restartPolicy"},
		{"spec: host alias address", spec, `hostAliases: [{ip: local, hostnames: [a]}]`, ".hostAliases[0].ip"},
		{"spec: host alias name", spec, `hostAliases: [{ip: 10.0.0.1, hostnames: ["a b"]}]`, ".hostAliases[0].hostnames[0]"},
		{"spec: deadline", spec, `activeDeadlineSeconds: 0`, ".activeDeadlineSeconds"},
		{"spec: skew", spec, `topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]`, ".topologySpreadConstraints[0].maxSkew"},
		{"spec: topology key", spec, `topologySpreadConstraints: [{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]`, ".topologySpreadConstraints[0].topologyKey"},
		{"spec: unsatisfiable", spec, `topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: Wait}]`, ".topologySpreadConstraints[0].whenUnsatisfiable"},
		{"spec: readiness gate", spec, `readinessGates: [{conditionType: "a b"}]`, ".readinessGates[0].conditionType"},
		{"spec: scheduling gate", spec, `schedulingGates: [{name: "a b"}]`, ".schedulingGates[0].name"},
		{"spec: node selector", spec, `nodeSelector: {"a b": c}`, ".nodeSelector[a b]"},
		{"spec: affinity weight", spec, `affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}`, ".weight"},
		{"spec: affinity operator", spec, `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Has}]}]}}}`, ".operator"},
		{"spec: affinity topology", spec, `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}}]}}`, ".topologyKey"},
		{"spec: sysctl", spec, `securityContext: {sysctls: [{name: "a b", value: "1"}]}`, ".securityContext.sysctls[0].name"},
		{"spec: file system group", spec, `securityContext: {fsGroup: -1}`, ".securityContext.fsGroup"},
		{"spec: supplemental group", spec, `securityContext: {supplementalGroups: [-1]}`, ".securityContext.supplementalGroups[0]"},
		{"spec: group change", spec, `securityContext: {fsGroup: 1, fsGroupChangePolicy: Never}`, ".securityContext.fsGroupChangePolicy"},
		{"spec: seccomp type", spec, `securityContext: {seccompProfile: {type: Strict}}`, ".securityContext.seccompProfile.type"},
		{"spec: service account", spec, `serviceAccountName: "A B"`, ".serviceAccountName"},
		{"spec: priority class", spec, `priorityClassName: "A B"`, ".priorityClassName"},
		{"spec: runtime class", spec, `runtimeClassName: "A B"`, ".runtimeClassName"},
		{"spec: preemption", spec, `preemptionPolicy: Sometimes`, ".preemptionPolicy"},
		{"spec: host name", spec, `hostname: "A B"`, ".hostname"},
		{"spec: subdomain", spec, `subdomain: "A B"`, ".subdomain"},
		{"spec: operating system", spec, `os: {name: plan9}`, ".os.name"},
		{"spec: shared and host processes", spec, `shareProcessNamespace: true, hostPID: true`, ".shareProcessNamespace"},

		{"spec: no domain", spec, `topologySpreadConstraints: [{maxSkew: 1, minDomains: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]`, ".minDomains"},
		{"spec: domains, and anyway", spec, `topologySpreadConstraints: [{maxSkew: 1, minDomains: 2, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]`, ".minDomains"},
		{"spec: keys without a selector", spec, `topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, matchLabelKeys: [x]}]`, ".matchLabelKeys"},
		{"spec: node affinity policy", spec, `topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, nodeAffinityPolicy: Maybe}]`, ".nodeAffinityPolicy"},
		{"spec: affinity with values", spec, `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists, values: [x]}]}]}}}`, ".values"},
		{"spec: supplemental groups", spec, `securityContext: {supplementalGroupsPolicy: X}`, ".supplementalGroupsPolicy"},
		{"spec: SELinux", spec, `securityContext: {seLinuxChangePolicy: X}`, ".seLinuxChangePolicy"},
		{"spec: padded AppArmor profile", spec, `securityContext: {appArmorProfile: {type: Localhost, localhostProfile: " a"}}`, ".localhostProfile"},
		{"spec: host name override", spec, `hostnameOverride: A_B`, ".hostnameOverride"},
		{"spec: claim of nothing", spec, `resourceClaims: [{name: a}]`, ".resourceClaims[0]"},
		{"spec: request over limit", spec, `resources: {requests: {cpu: 2}, limits: {cpu: 1}}`, ".resources.requests.cpu"},
		{"spec: unknown resource", spec, `resources: {limits: {gpu: 1}}`, ".resources.limits.gpu"},
		{"env: divisor", native, `env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "3"}}}]`, ".divisor"},
		{"env: path of a file", native, `env: [{name: A, valueFrom: {fileKeyRef: {volumeName: scratch, path: ../x, key: a}}}]`, ".fileKeyRef.path"},
		{"volume: CSI driver", volume, `csi: {driver: "a b"}`, ".csi.driver"},
		{"volume: empty image", volume, `image: {}`, ".image.reference"},
		{"volume: ephemeral without access modes", volume, `ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 1Gi}}}}}`, ".accessModes"},
		{"volume: ephemeral access mode", volume, `ephemeral: {volumeClaimTemplate: {spec: {accessModes: [Often], resources: {requests: {storage: 1Gi}}}}}`, ".accessModes[0]"},
		{"volume: projected twice", volume, `projected: {sources: [{secret: {name: a, items: [{key: a, path: b}]}}, {configMap: {name: a, items: [{key: a, path: b}]}}]}`, ".sources[1].configMap.items[0].path"},
		{"volume: bundle without a name", volume, `projected: {sources: [{clusterTrustBundle: {path: a}}]}`, ".clusterTrustBundle"},

		{"app: env", app, `env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.bogus}}}]`, ".template.env[0].valueFrom.fieldRef.fieldPath"},
		{"app: request over limit", app, `resources: {requests: {cpu: 2}, limits: {cpu: 1}}`, ".template.resources.requests.cpu"},
		{"app: no handler", app, `livenessProbe: {periodSeconds: 1}`, ".template.livenessProbe"},
		{"app: lifecycle", app, `lifecycle: {preStop: {exec: {}}}`, ".template.lifecycle.preStop.exec.command"},
		{"app: pull policy", app, `imagePullPolicy: Often`, ".template.imagePullPolicy"},
		{"app: seccomp", app, `securityContext: {seccompProfile: {type: Localhost}}`, ".template.securityContext.seccompProfile.localhostProfile"},
		{"app: port", app, `ports: [{name: HTTP, containerPort: 80}]`, ".template.ports[0].name"},
		{"app: propagation", app, `volumeMounts: [{name: scratch, mountPath: /a, mountPropagation: Sideways}]`, ".template.volumeMounts[0].mountPropagation"},

		{"labels: value", labels, `a: "x y"`, ".labels[a]"},
		{"labels: key", labels, `"a b": c`, ".labels[a b]"},
		{"annotations: key", annotations, `"a b": c`, ".annotations[a b]"},
	}
}

func soundProfiles() []row {
	return []row{
		{name: "nothing", in: native, text: `startupProbe: {exec: {command: [ok]}}`},
		{name: "env", in: native, text: `env: [{name: "a.b-c", value: ""}, {name: A, valueFrom: {fieldRef: {fieldPath: "metadata.labels['example.com/a']"}}}, {name: B, valueFrom: {resourceFieldRef: {resource: limits.hugepages-2Mi}}}, {name: C, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}, {name: D, valueFrom: {secretKeyRef: {name: s, key: ca.crt}}}, {name: E, valueFrom: {fieldRef: {fieldPath: status.hostIPs}}}]`},
		{name: "envFrom", in: native, text: `envFrom: [{prefix: A_, configMapRef: {name: a}}, {secretRef: {name: b, optional: true}}]`},
		{name: "resources", in: native, text: `resources: {requests: {cpu: 100m, memory: 1Gi, ephemeral-storage: 1Gi, example.com/gpu: 1}, limits: {cpu: 1, example.com/gpu: 1, hugepages-2Mi: 4Mi}}`},
		{name: "probes", in: native, text: `ports: [{name: http-1, containerPort: 80}], startupProbe: {httpGet: {port: http-1, path: /, scheme: HTTPS, httpHeaders: [{name: X-A, value: ""}]}}, livenessProbe: {grpc: {port: 5}, terminationGracePeriodSeconds: 5}, readinessProbe: {tcpSocket: {port: 80}, successThreshold: 3}`},
		{name: "lifecycle", in: container, text: `lifecycle: {preStop: {sleep: {seconds: 5}}, postStart: {httpGet: {port: 80}}}`},
		{name: "ports", in: native, text: `ports: [{name: a, containerPort: 80, hostPort: 80, hostIP: "::1"}, {name: b, containerPort: 80, protocol: UDP}, {containerPort: 8301, protocol: SCTP}]`},
		{name: "mounts", in: native, text: `volumeMounts: [{name: scratch, mountPath: /a, subPath: "a/b..c"}, {name: scratch, mountPath: /b, mountPropagation: HostToContainer}, {name: scratch, mountPath: relative, subPathExpr: "$(A)", readOnly: true, recursiveReadOnly: Disabled}], volumeDevices: [{name: block, devicePath: /dev/a}]`},
		{name: "propagation with privileges", in: native, text: `securityContext: {privileged: true}, volumeMounts: [{name: scratch, mountPath: /a, mountPropagation: Bidirectional}]`},
		{name: "security", in: native, text: `securityContext: {runAsUser: 0, runAsGroup: 1, appArmorProfile: {type: Localhost, localhostProfile: a}, seccompProfile: {type: Localhost, localhostProfile: a/b.json}, procMount: Default, capabilities: {add: [NET_ADMIN], drop: [ALL]}, allowPrivilegeEscalation: false}`},
		{name: "container", in: native, text: `imagePullPolicy: Always, terminationMessagePolicy: FallbackToLogsOnError, terminationMessagePath: /dev/log, workingDir: /a, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}], stdin: true, tty: true`},
		{name: "secret", in: volume, text: `secret: {secretName: a, defaultMode: 511, items: [{key: a, path: b/c, mode: 0}], optional: true}`},
		{name: "host path", in: volume, text: `hostPath: {path: /var/run/a.sock, type: Socket}`},
		{name: "size", in: volume, text: `emptyDir: {sizeLimit: 0, medium: Memory}`},
		{name: "projected", in: volume, text: `projected: {defaultMode: 292, sources: [{serviceAccountToken: {path: a, expirationSeconds: 600}}, {secret: {name: a}}, {configMap: {name: a, items: [{key: k, path: p}]}}, {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}`},
		{name: "CSI", in: volume, text: `csi: {driver: secrets-store.csi.k8s.io, readOnly: true, volumeAttributes: {a: b}}`},
		{name: "ephemeral", in: volume, text: `ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}`},
		{name: "image volume", in: volume, text: `image: {reference: "example/a:1", pullPolicy: Always}`},
		{name: "NFS", in: volume, text: `nfs: {path: /a, server: nfs.example}`},
		{name: "DNS", in: spec, text: `dnsPolicy: None, dnsConfig: {nameservers: [10.0.0.1, "fd00::1"], searches: [a.example, ".", _tcp.example.], options: [{name: ndots, value: "2"}, {name: edns0}]}`},
		{name: "tolerations", in: spec, text: `tolerations: [{operator: Exists}, {key: a, value: b}, {key: example.com/a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]`},
		{name: "names", in: spec, text: `serviceAccountName: a.b, runtimeClassName: gvisor, hostname: a, subdomain: b, schedulerName: own, os: {name: linux}`},
		{name: "scheduling", in: spec, text: `nodeSelector: {kubernetes.io/arch: amd64}, schedulingGates: [{name: example.com/a}], readinessGates: [{conditionType: example.com/ready}], topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]`},
		{name: "affinity", in: spec, text: `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gt, values: ["1"]}], matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}, podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, podAffinityTerm: {topologyKey: a, labelSelector: {matchLabels: {a: b}}}}]}}`},
		{name: "pod security", in: spec, text: `securityContext: {fsGroup: 0, fsGroupChangePolicy: OnRootMismatch, supplementalGroups: [0], sysctls: [{name: net.core.somaxconn, value: "1"}, {name: kernel/shm_rmid_forced, value: "1"}], runAsUser: 1, seccompProfile: {type: Unconfined}}, terminationGracePeriodSeconds: 0, activeDeadlineSeconds: 1`},
		{name: "hosts", in: spec, text: `hostAliases: [{ip: "fd00::1", hostnames: [a, a.example]}], imagePullSecrets: [{name: a.b}], shareProcessNamespace: true, enableServiceLinks: false`},
		{name: "app", in: app, text: `env: [{name: A, value: b}], resources: {limits: {cpu: 1}}, livenessProbe: {exec: {command: [a]}}, lifecycle: {preStop: {exec: {command: [a]}}}, ports: [{name: a, containerPort: 80}], volumeMounts: [{name: scratch, mountPath: /a}], imagePullPolicy: Always, securityContext: {seccompProfile: {type: RuntimeDefault}}`},
		{name: "labels", in: labels, text: `a: "", example.com/a: b.c`},
		{name: "annotations", in: annotations, text: `example.com/A: "<&>", container.apparmor.security.beta.kubernetes.io/app: runtime/default`},
	}
}
