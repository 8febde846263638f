package compile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"

	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
)

// standardVariable is the variable with all containers of a pod.
const standardVariable = reserved + "containers"

// standardContainers is its expression.
const standardContainers = `object.?spec.?initContainers.orValue([]) + object.?spec.?containers.orValue([]) + object.?spec.?ephemeralContainers.orValue([])`

// check is a check of the Pod Security Standards, as k8s.io/pod-security-admission/policy has it.
type check struct {
	id string
	// restricted is false for a check of the level baseline.
	restricted bool
	// overrides is the check of the level baseline in place of which a restricted one is.
	overrides string
	versions  []checkVersion
}

// checkVersion is what a check asks from a version of Kubernetes, 1.minor, on.
type checkVersion struct {
	minor               int
	message, expression string
}

// standardChecks returns all checks by their names. $C are all containers, $S is the securityContext of the container c, $P that of the pod, and
// $U is true for a pod in a user namespace of its own, and $W for one on Windows.
func standardChecks() []check {
	const (
		baselineCapabilities = `["AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"]`
		dropAll              = `$C.all(c, $S.?capabilities.?drop.orValue([]).exists(d, d == "ALL") && $S.?capabilities.?add.orValue([]).all(a, a == "NET_BIND_SERVICE"))`
		escalation           = `$C.all(c, $S.?allowPrivilegeEscalation.orValue(true) == false)`
		profiles             = `["RuntimeDefault", "Localhost"]`
		seccompFields        = `(!$P.?seccompProfile.hasValue() || $P.?seccompProfile.?type.orValue("") in ` + profiles + `) && $C.all(c, !$S.?seccompProfile.hasValue() || $S.?seccompProfile.?type.orValue("") in ` + profiles + `)`
		seccompSet           = seccompFields + ` && ($P.?seccompProfile.hasValue() || $C.all(c, $S.?seccompProfile.hasValue()))`
		nonRoot              = `$P.?runAsNonRoot.orValue(true) == true && $C.all(c, $S.?runAsNonRoot.orValue($P.?runAsNonRoot.orValue(false)) == true)`
		notRoot              = `$P.?runAsUser.orValue(1) != 0 && $C.all(c, $S.?runAsUser.orValue(1) != 0)`
		procMount            = `$C.all(c, $S.?procMount.orValue("Default") == "Default")`
		annotation           = `object.?metadata.?annotations.orValue({})`
		seccompAnnotation    = ` in ["runtime/default", "docker/default"] || string(` + annotation + `[k]).startsWith("localhost/")`
		sysctls0             = `"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start"`
		sysctls27            = sysctls0 + `, "net.ipv4.ip_local_reserved_ports"`
		sysctls29            = sysctls27 + `, "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes"`
		sysctls32            = sysctls29 + `, "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"`
		sysctls37            = sysctls32 + `, "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"`
		volumes              = `["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"]`
	)
	hosts := func(handlers ...string) string {
		var all []string
		for _, handler := range handlers {
			for _, action := range []string{"httpGet", "tcpSocket"} {
				all = append(all, fmt.Sprintf(`c.?%s.?%s.?host.orValue("") == ""`, handler, action))
			}
		}
		return strings.Join(all, " && ")
	}
	sysctls := func(names string) string {
		return `$P.?sysctls.orValue([]).all(s, s.?name.orValue("") in [` + names + `])`
	}
	selinux := func(types string) string {
		of := func(options string) string {
			return fmt.Sprintf(`%[1]s.?type.orValue("") in [%[2]s] && %[1]s.?user.orValue("") == "" && %[1]s.?role.orValue("") == ""`, options, types)
		}
		return of("$P.?seLinuxOptions") + ` && $C.all(c, ` + of("$S.?seLinuxOptions") + `)`
	}
	const sysctlsMessage, selinuxMessage = "forbidden sysctls", "seLinuxOptions: a forbidden type, or a user or role"
	return []check{
		{"allowPrivilegeEscalation", true, "", []checkVersion{
			{8, "allowPrivilegeEscalation != false", escalation},
			{25, "allowPrivilegeEscalation != false", `$W || ` + escalation},
		}},
		{"appArmorProfile", false, "", []checkVersion{{
			0, "forbidden AppArmor profile",
			`(!$P.?appArmorProfile.hasValue() || $P.?appArmorProfile.?type.orValue("") in ` + profiles + `) && ` +
				`$C.all(c, !$S.?appArmorProfile.hasValue() || $S.?appArmorProfile.?type.orValue("") in ` + profiles + `) && ` +
				annotation + `.all(k, !k.startsWith("container.apparmor.security.beta.kubernetes.io/") || ` +
				annotation + `[k] in ["", "runtime/default"] || string(` + annotation + `[k]).startsWith("localhost/"))`,
		}}},
		{"capabilities_baseline", false, "", []checkVersion{{0, "non-default capabilities", `$C.all(c, $S.?capabilities.?add.orValue([]).all(a, a in ` + baselineCapabilities + `))`}}},
		{"capabilities_restricted", true, "capabilities_baseline", []checkVersion{
			{22, "unrestricted capabilities", dropAll},
			{25, "unrestricted capabilities", `$W || ` + dropAll},
		}},
		{"hostNamespaces", false, "", []checkVersion{{
			0, "host namespaces",
			`object.?spec.?hostNetwork.orValue(false) == false && object.?spec.?hostPID.orValue(false) == false && object.?spec.?hostIPC.orValue(false) == false`,
		}}},
		{"hostPathVolumes", false, "", []checkVersion{{0, "hostPath volumes", `object.?spec.?volumes.orValue([]).all(v, !has(v.hostPath))`}}},
		{"hostPorts", false, "", []checkVersion{{0, "hostPort", `$C.all(c, c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0))`}}},
		{"hostProbesAndHostLifecycle", false, "", []checkVersion{{
			34, "probe or lifecycle host",
			`$C.all(c, ` + hosts("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.?postStart", "lifecycle.?preStop") + `)`,
		}}},
		{"privileged", false, "", []checkVersion{{0, "privileged", `$C.all(c, $S.?privileged.orValue(false) == false)`}}},
		{"procMount", false, "", []checkVersion{{0, "procMount", procMount}, {35, "procMount", `$U || ` + procMount}}},
		{"procMount_restricted", true, "procMount", []checkVersion{{35, "procMount", procMount}}},
		// A volume of which only the name is given is an emptyDir.
		{"restrictedVolumes", true, "hostPathVolumes", []checkVersion{{0, "restricted volume types", `object.?spec.?volumes.orValue([]).all(v, ` + volumes + `.exists(t, t in v) || v.size() == 1)`}}},
		{"runAsNonRoot", true, "", []checkVersion{{0, "runAsNonRoot != true", nonRoot}, {35, "runAsNonRoot != true", `$U || ` + nonRoot}}},
		{"runAsUser", true, "", []checkVersion{{23, "runAsUser=0", notRoot}, {35, "runAsUser=0", `$U || ` + notRoot}}},
		{"seLinuxOptions", false, "", []checkVersion{
			{0, selinuxMessage, selinux(`"", "container_t", "container_init_t", "container_kvm_t"`)},
			{31, selinuxMessage, selinux(`"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"`)},
		}},
		{"seccompProfile_baseline", false, "", []checkVersion{
			{0, "seccompProfile", annotation + `.all(k, k != "seccomp.security.alpha.kubernetes.io/pod" && ` +
				`!$C.exists(c, k == "container.seccomp.security.alpha.kubernetes.io/" + string(c.name)) || ` + annotation + `[k]` + seccompAnnotation + `)`},
			{19, "seccompProfile", seccompFields},
		}},
		{"seccompProfile_restricted", true, "seccompProfile_baseline", []checkVersion{
			{19, "seccompProfile", seccompSet},
			{25, "seccompProfile", `$W || ` + seccompSet},
		}},
		{"sysctls", false, "", []checkVersion{
			{0, sysctlsMessage, sysctls(sysctls0)},
			{27, sysctlsMessage, sysctls(sysctls27)},
			{29, sysctlsMessage, sysctls(sysctls29)},
			{32, sysctlsMessage, sysctls(sysctls32)},
			{37, sysctlsMessage, sysctls(sysctls37)},
		}},
		{"windowsHostProcess", false, "", []checkVersion{{
			0, "hostProcess",
			`$P.?windowsOptions.?hostProcess.orValue(false) == false && $C.all(c, $S.?windowsOptions.?hostProcess.orValue(false) == false)`,
		}}},
	}
}

// expand writes out what the expressions of checks abbreviate.
func expand(expression string) string {
	return strings.NewReplacer(
		"$C", "variables."+standardVariable, "$S", "c.?securityContext", "$P", "object.?spec.?securityContext",
		"$U", "object.?spec.?hostUsers.orValue(true) == false", "$W", `object.?spec.?os.?name.orValue("") == "windows"`,
	).Replace(expression)
}

// latestMinor is the version of the checks, 1.minor.
const latestMinor = 37

// standardRules returns the checks of a level as rules with their expressions, which are true for a pod that passes.
func standardRules(level, version string) (chosen []rule, expressions []string, err error) {
	parsed, levelKnown, versionKnown := podsecurity.Parse(level, version)
	if !levelKnown || !versionKnown {
		return nil, nil, fmt.Errorf("%q is not a level of Pod Security in a version", level+":"+version)
	}
	minor := latestMinor
	if text, ok := strings.CutPrefix(version, "v1."); ok {
		given, err := strconv.Atoi(text)
		if err != nil {
			return nil, nil, err
		}
		minor = min(minor, given)
	}
	if !parsed.Enforces() {
		return nil, nil, nil
	}
	all := slices.DeleteFunc(standardChecks(), func(c check) bool {
		return c.versions[0].minor > minor || c.restricted && level != string(api.LevelRestricted)
	})
	for _, c := range all {
		if slices.ContainsFunc(all, func(other check) bool { return other.overrides == c.id }) {
			continue
		}
		i := slices.IndexFunc(c.versions, func(v checkVersion) bool { return v.minor > minor })
		if i < 0 {
			i = len(c.versions)
		}
		v := c.versions[i-1]
		chosen = append(chosen, rule{
			name: "podSecurity." + c.id, message: fmt.Sprintf("violates PodSecurity %q: %s", parsed, v.message), reason: new(metav1.StatusReasonForbidden), standard: true,
		})
		expressions = append(expressions, expand(v.expression))
	}
	return chosen, expressions, nil
}

// standardUnchanged is true for the update of a pod that changes nothing that the checks look at, as the API server's own plug-in has it.
func standardUnchanged() string {
	same := func(list string) string {
		images := func(of string) string { return fmt.Sprintf("%s.?spec.?%s.orValue([]).map(c, c.?image)", of, list) }
		return images("object") + " == " + images("oldObject")
	}
	return `request.operation == "UPDATE" && ` + same("containers") + " && " + same("initContainers") +
		` && object.?spec.?ephemeralContainers.orValue([]).all(c, oldObject.?spec.?ephemeralContainers.orValue([]).exists(d, d.name == c.name && d.?image == c.?image))`
}
