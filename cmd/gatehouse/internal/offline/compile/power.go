package compile

import (
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
)

// powerVariable is the variable that is true if an update gives a pod no more power than it had.
const powerVariable = reserved + "keepsPower"

// same returns a condition that is true if two objects are the same but for the members of these names, and empty ones.
func same(a, b string, without ...string) string {
	names := make([]celexpr.Expr, len(without))
	for i, name := range without {
		names[i] = celexpr.Str(name)
	}
	a, b = a+".orValue(z[0])", b+".orValue(z[0])"
	return fmt.Sprintf(`[%[1]s, %[2]s].all(m, m.all(k, k in %[3]s || m[k] in z || %[1]s[?k] == %[2]s[?k]))`, a, b, celexpr.List(names...))
}

// withEmpty gives the empty values a name, z.
func withEmpty(text string) string { return "[[dyn({}), dyn([]), dyn(null)]].all(z, " + text + ")" }

// harmless is true for an update that changes nothing but finalizers, and owners of an object that is being deleted, as policy.isHarmless.
func harmless() string {
	return `request.operation == "UPDATE" && request.?subResource.orValue("") == "" && ` + withEmpty(same("optional.of(object)", "optional.of(oldObject)", "metadata")) + " && [" +
		`["finalizers", "managedFields", "resourceVersion", "generation"] + (has(oldObject.metadata.deletionTimestamp) ? ["ownerReferences"] : [])` +
		`].all(w, [object, oldObject].all(m, m.metadata.all(k, k in w || object.metadata[?k] == oldObject.metadata[?k])))`
}

// keepsPower is podsecurity.KeepsPower for all of a pod, or of a template: object and old are their optional values.
func keepsPower(object, old string) string {
	lists := `["containers", "initContainers", "ephemeralContainers"]`
	inherited := []string{"appArmorProfile", "runAsGroup", "runAsNonRoot", "runAsUser", "seccompProfile"}
	resources := func(a, b string) string {
		a, b = a+".?resources", b+".?resources"
		return `["limits", "requests"].all(r, ` + same(a+"[?r]", b+"[?r]", "cpu", "ephemeral-storage", "memory") + ") && " + same(a, b, "limits", "requests")
	}
	subset := func(a, b string) string { return fmt.Sprintf("%s.orValue(z[1]).all(e, e in %s.orValue(z[1]))", a, b) }
	// What a container has, with what it inherits from its pod.
	now := func(name string) string {
		return "c.?securityContext.?" + name + ".or(p[0].?securityContext.?" + name + ")"
	}
	before := func(name string) string {
		return strings.ReplaceAll(strings.ReplaceAll(now(name), "c.?", "d.?"), "p[0]", "p[1]")
	}
	profile := func(name string) string {
		return fmt.Sprintf(`(%[1]s == %[2]s || %[1]s.?type.orValue("") == "RuntimeDefault" && %[2]s.?type.orValue("Unconfined") == "Unconfined")`, now(name), before(name))
	}
	is, yes, no := "optional.of(c)", "optional.of(true)", "optional.of(false)"
	was, c, d := "optional.of(d)", "c.?securityContext", "d.?securityContext"
	container := strings.Join([]string{
		same(is, was, "livenessProbe", "readinessProbe", "startupProbe", "imagePullPolicy", "ports", "resizePolicy", "resources", "securityContext", "terminationMessagePolicy"),
		resources("c", "d"),
		`[[c, d].map(x, x.?ports.orValue(z[1]).filter(o, has(o.hostPort)))].all(x, x[0] == x[1])`,
		`["livenessProbe", "readinessProbe", "startupProbe"].all(r, ` +
			same("c[?r]", "d[?r]", "failureThreshold", "initialDelaySeconds", "periodSeconds", "successThreshold", "terminationGracePeriodSeconds", "timeoutSeconds") + ")",
		profile("appArmorProfile"), profile("seccompProfile"),
		now("runAsGroup") + " == " + before("runAsGroup"),
		fmt.Sprintf("(%s == %s || %s != %s)", now("runAsNonRoot"), yes, before("runAsNonRoot"), yes),
		fmt.Sprintf("(%[1]s == %[2]s || %[1]s.orValue(0) != 0 && %[2]s.orValue(0) == 0 && %[3]s != %[4]s)", now("runAsUser"), before("runAsUser"), before("runAsNonRoot"), yes),
		same(c, d, append(inherited, "allowPrivilegeEscalation", "capabilities", "privileged", "procMount", "readOnlyRootFilesystem")...),
		fmt.Sprintf("(%s.?privileged != %s || %s.?privileged == %s)", c, yes, d, yes),
		fmt.Sprintf("(%s.?readOnlyRootFilesystem == %s || %s.?readOnlyRootFilesystem != %s)", c, yes, d, yes),
		fmt.Sprintf("(%s.?allowPrivilegeEscalation == %s || %s.?allowPrivilegeEscalation != %s)", c, no, d, no),
		fmt.Sprintf(`(%[1]s.?procMount.orValue("Default") == "Default" || %[1]s.?procMount == %[2]s.?procMount)`, c, d),
		same(c+".?capabilities", d+".?capabilities", "add", "drop"), subset(c+".?capabilities.?add", d+".?capabilities.?add"),
		fmt.Sprintf(`("ALL" in %s.?capabilities.?drop.orValue(z[1]) || %s)`, c, subset(d+".?capabilities.?drop", c+".?capabilities.?drop")),
	}, " && ")
	return withEmpty(fmt.Sprintf("[[%s.?spec.orValue(z[0]), %s.?spec.orValue(z[0])]].all(p, ", object, old) + strings.Join([]string{
		same("optional.of(p[0])", "optional.of(p[1])", "containers", "initContainers", "ephemeralContainers", "activeDeadlineSeconds", "readinessGates", "resources", "schedulingGates",
			"securityContext", "serviceAccount", "serviceAccountName", "terminationGracePeriodSeconds", "volumes",
			"automountServiceAccountToken", "hostIPC", "hostNetwork", "hostPID", "hostUsers", "shareProcessNamespace"),
		fmt.Sprintf(`["hostIPC", "hostNetwork", "hostPID", "shareProcessNamespace"].all(k, p[0][?k] != %[1]s || p[1][?k] == %[1]s)`, yes),
		fmt.Sprintf("(p[0].?hostUsers == %[1]s || p[1].?hostUsers != %[1]s)", no),
		fmt.Sprintf("(p[0].?automountServiceAccountToken == %s || p[0].?automountServiceAccountToken == p[1].?automountServiceAccountToken)", no),
		`[p.map(s, [s.?serviceAccountName.orValue(""), s.?serviceAccount.orValue(""), dyn("default")].filter(n, n != "")[0])].all(n, n[0] == n[1])`,
		resources("p[0]", "p[1]"),
		same("p[0].?securityContext", "p[1].?securityContext", append(inherited, "sysctls")...),
		subset("p[0].?securityContext.?sysctls", "p[1].?securityContext.?sysctls"),
		lists + ".all(l, p[0][?l].orValue(z[1]).all(c, p[1][?l].orValue(z[1]).exists(d, d.?name == c.?name && " + container + ")))",
		`p[0].?volumes.orValue(z[1]).all(v, v in p[1].?volumes.orValue(z[1]) || ` +
			`v.all(k, k in ["name", "configMap", "downwardAPI", "emptyDir", "projected", "secret"] || v[k] in z) && ` +
			lists + `.all(l, p[0][?l].orValue(z[1]).all(c, ["volumeMounts", "volumeDevices"].all(f, c[?f].orValue(z[1]).all(m, m.?name != v.?name)))))`,
	}, " && ") + ")")
}
