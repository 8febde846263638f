package lint_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	podRule        = "{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}"
	deploymentRule = "{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}"
	severalRule    = "{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments, daemonsets]}"
	templateRules  = "{apiGroups: ['', apps], apiVersions: [v1], operations: [CREATE], resources: [pods, deployments]}"
	deleteRule     = "{apiGroups: [''], apiVersions: [v1], operations: [DELETE], resources: [pods]}"
	anyRule        = "{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [pods]}"
	execRule       = "{apiGroups: [''], apiVersions: [v1], operations: [CONNECT], resources: [pods/exec, pods/attach]}"
)

// TestDiagnostics has for each case a policy and what is found, without the part
// that names the policy and the field. The guide has an example of every code.
func TestDiagnostics(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rule, spec, want string }{
		"a field of a structure in a list": {
			podRule, validations(`object.spec.containers.all(c, c.imag != "")`),
			`1:32 in "object.spec.containers.all(c, c.imag != \"\")": for v1 Pod: there is no field "imag" in core/v1.Container (hint: did you mean "image"?) [type]`,
		},
		"a number and a text": {
			deploymentRule, validations(`object.spec.replicas == "3"`),
			`1:22 in "object.spec.replicas == \"3\"": for apps/v1 Deployment: found no matching overload for "_==_" applied to "(int, string)" [type]`,
		},
		"a variable of a known type": {
			deploymentRule, "variables: [{name: spec, expression: object.spec.template.spec}]\n" + validations(`variables.spec.container.size() > 0`),
			`1:15 in "variables.spec.container.size() > 0": for apps/v1 Deployment: there is no field "container" in core/v1.PodSpec (hint: did you mean "containers"?) [type]`,
		},
		"a condition": {
			deploymentRule, "matchConditions: [{name: c, expression: object.spec.paussed}]\n" + validations("object.metadata.name != ''"),
			`1:12 in "object.spec.paussed": for apps/v1 Deployment: there is no field "paussed" in apps/v1.DeploymentSpec (hint: did you mean "paused"?) [type]`,
		},
		"an old object and a message": {
			deploymentRule, "validations:\n- {expression: object.metadata.name != '', messageExpression: 'oldObject == null ? \"\" : oldObject.spec.pause'}",
			`1:40 in "oldObject == null ? \"\" : oldObject.spec.pause": for apps/v1 Deployment: there is no field "pause" in apps/v1.DeploymentSpec (hint: did you mean "paused"?) [type]`,
		},
		"the options of exec": {
			execRule, validations("object.comand.size() > 0"),
			`1:7 in "object.comand.size() > 0": for v1 PodAttachOptions: there is no field "comand" in core/v1.PodAttachOptions [type]
1:7 in "object.comand.size() > 0": for v1 PodExecOptions: there is no field "comand" in core/v1.PodExecOptions (hint: did you mean "command"?) [type]`,
		},
		"params of a known kind": {
			deploymentRule, "paramKind: {apiVersion: v1, kind: ConfigMap}\n" + validations("object.metadata.name == params.dat.name"),
			`1:31 in "object.metadata.name == params.dat.name": for apps/v1 Deployment: there is no field "dat" in core/v1.ConfigMap (hint: did you mean "data"?) [type]`,
		},
		"a field that one of two kinds has, and nothing tells them apart": {
			severalRule, validations("object.spec.replicas <= 5"),
			`1:12 in "object.spec.replicas <= 5": for apps/v1 DaemonSet: there is no field "replicas" in apps/v1.DaemonSetSpec [type]`,
		},
		"a field that none of two kinds has, although they are told apart": {
			severalRule, validations("object.kind == 'DaemonSet' || has(object.spec.replica)"),
			`1:34 in "object.kind == 'DaemonSet' || has(object.spec.replica)": for apps/v1 DaemonSet: there is no field "replica" in apps/v1.DaemonSetSpec [type]
1:34 in "object.kind == 'DaemonSet' || has(object.spec.replica)": for apps/v1 Deployment: there is no field "replica" in apps/v1.DeploymentSpec (hint: did you mean "replicas"?) [type]`,
		},
		"a long expression is shown around the place": {
			podRule, validations(`object.metadata.name != "a name that is long enough to fill the line, and then some" && object.kindd == "Pod"`),
			`1:95 in "… enough to fill the line, and then some\" && object.kindd == \"Pod\"": for v1 Pod: there is no field "kindd" in core/v1.Pod (hint: did you mean "kind"?) [type]`,
		},
		"a line of several": {
			podRule, "validations:\n- message: m\n  expression: |-\n    object.kind == 'Pod' &&\n      object.kindd == 'Pod'",
			`2:9 in "object.kindd == 'Pod'": for v1 Pod: there is no field "kindd" in core/v1.Pod (hint: did you mean "kind"?) [type]`,
		},
		"what has() is asked of may be absent": {
			podRule, validations("has(object.metadata.labels.team)"),
			`1:20 in "has(object.metadata.labels.team)": meta/v1.ObjectMeta.labels may be absent: then the expression fails, and the request is refused (hint: test it with has(object.metadata.labels), or write object.metadata.?labels with orValue) [optional-field]`,
		},
		"a key is no field of its holder": {
			podRule, validations("has(object.metadata.labels) && object.metadata.labels.team == 'a'"),
			`1:54 in "has(object.metadata.labels) && object.metadata.labels.team == 'a'": meta/v1.ObjectMeta.labels may be without key "team": then the expression fails, and the request is refused (hint: write object.metadata.labels[?"team"].orValue(…)) [optional-field]`,
		},
		"a nested structure": {
			podRule, validations("object.spec.containers.all(c, c.securityContext.privileged == false)"),
			`1:32 in "object.spec.containers.all(c, c.securityContext.privileged == false)": core/v1.Container.securityContext may be absent: then the expression fails, and the request is refused (hint: test it with has(c.securityContext), or write c.?securityContext with orValue) [optional-field]
1:48 in "object.spec.containers.all(c, c.securityContext.privileged == false)": core/v1.SecurityContext.privileged may be absent: then the expression fails, and the request is refused (hint: test it with has(c.securityContext.privileged), or write c.securityContext.?privileged with orValue) [optional-field]`,
		},
		"labels of a pod template are there, each of them need not be": {
			deploymentRule, validations("object.spec.template.metadata.labels.app == 'a' && object.spec.template.metadata.labels.size() > 1"),
			`1:37 in "object.spec.template.metadata.labels.app == 'a' && object.spec.template.metadata…": meta/v1.ObjectMeta.labels may be without key "app": then the expression fails, and the request is refused (hint: write object.spec.template.metadata.labels[?"app"].orValue(…)) [optional-field]`,
		},
		"an optional field in a variable": {
			deploymentRule, "variables: [{name: v, expression: object.spec.template.spec.volumes}]\n" + validations("variables.v.size() == 0"),
			`1:26 in "object.spec.template.spec.volumes": core/v1.PodSpec.volumes may be absent: then the expression fails, and the request is refused (hint: test it with has(object.spec.template.spec.volumes), or write object.spec.template.spec.?volumes with orValue) [optional-field]`,
		},
		"a policy about deletions": {
			deleteRule, validations("object.metadata.name == 'a'", "object['kind'] == 'a'"),
			`1:7 in "object.metadata.name == 'a'": object is null on DELETE, so the expression fails, and the request is refused; the same holds for 1 other expression (hint: use oldObject) [null-object]`,
		},
		"an old object on CREATE, with failurePolicy Ignore": {
			podRule, "failurePolicy: Ignore\n" + validations("oldObject.metadata.name == 'a'"),
			`1:10 in "oldObject.metadata.name == 'a'": oldObject is null on CREATE, so the expression fails, and what it checks is not checked (hint: write oldObject == null || …, or request.operation == …) [null-object]`,
		},
		"a namespace in conditions": {
			podRule, "matchConditions: [{name: c, expression: 'namespaceObject == null || has(namespaceObject.metadata.labels)'}, {name: d, expression: \"namespaceObject.metadata.name != 'a'\"}]\n" +
				validations("namespaceObject.metadata.name != 'b'"),
			`1:1 in "namespaceObject == null || has(namespaceObject.metadata.labels)": namespaceObject is always null in match conditions, also that of a request in a namespace (hint: write a namespaceSelector, or ask in the validations) [namespace-object]
1:1 in "namespaceObject.metadata.name != 'a'": namespaceObject is always null in match conditions, also that of a request in a namespace (hint: write a namespaceSelector, or ask in the validations) [namespace-object]`,
		},
		"or on a plain value": {
			podRule, validations("object.spec.or(optional.of(1)).hasValue()"),
			`1:15 in "object.spec.or(optional.of(1)).hasValue()": "object.spec" is no optional value, so or is an error here and from Kubernetes 1.37 on, where versions before gave the value itself (hint: write object.?spec) [or-value]`,
		},
		"hasValue on a plain value": {
			podRule, validations("object.metadata.hasValue()"),
			`1:25 in "object.metadata.hasValue()": "object.metadata" is no optional value, so hasValue is an error in every version of Kubernetes (hint: write object.?metadata) [or-value]`,
		},
		"orValue on an element of a variable": {
			podRule, "variables: [{name: v, expression: dyn(object.spec)}]\n" + validations("variables.v.hostPID.orValue(false)"),
			`1:28 in "variables.v.hostPID.orValue(false)": "variables.v.hostPID" is no optional value, so orValue is an error here and from Kubernetes 1.37 on, where versions before gave the value itself (hint: write variables.v.?hostPID) [or-value]`,
		},
		"orValue on an element by its index": {
			podRule, validations("object.spec.containers[0].orValue({}) == {}"),
			`1:34 in "object.spec.containers[0].orValue({}) == {}": "object.spec.containers[0]" is no optional value, so orValue is an error here and from Kubernetes 1.37 on, where versions before gave the value itself (hint: write optional.of(…), or drop the call) [or-value]`,
		},
		"a version that a group does not have": {
			"{apiGroups: [apps], apiVersions: [v11], operations: [CREATE], resources: [deployments]}", validations("object.metadata.name != ''"),
			`API group "apps" has no version "v11" (hint: did you mean "v1"?) [unknown-resource]`,
		},
		"a resource that no group has": {
			"{apiGroups: [apps, batch], apiVersions: [v1], operations: [CREATE], resources: [deployment]}", validations("request.name != ''"),
			`API group "apps", "batch" has no resource "deployment", so this never matches (hint: did you mean "deployments"?) [unknown-resource]`,
		},
		"an update of exec, and reading of logs": {
			"{apiGroups: [''], apiVersions: [v1], operations: [UPDATE, DELETE], resources: [pods/exec, pods/log, pods]}", validations("request.name != ''"),
			`"pods/exec" is only connected to, so this never matches UPDATE, DELETE (hint: write a rule of its own with operations: [CONNECT]) [operation]
"pods/log" is only read, so this never matches UPDATE, DELETE [operation]`,
		},
		"a connection to pods": {
			"{apiGroups: [''], apiVersions: [v1], operations: [CREATE, CONNECT], resources: [pods]}", validations("request.name != ''"),
			`"pods" has no operation CONNECT (hint: drop it) [operation]`,
		},
		"what no policy is asked about": {
			"{apiGroups: [admissionregistration.k8s.io], apiVersions: ['*'], operations: ['*'], resources: [validatingadmissionpolicies]}",
			validations("request.name != ''"),
			`the API server asks no policy about "validatingadmissionpolicies", so this never matches (hint: drop it) [operation]`,
		},
		"what no webhook is asked about": {
			"{apiGroups: [admissionregistration.k8s.io], apiVersions: ['*'], operations: ['*'], resources: [validatingwebhookconfigurations]}",
			validations("request.name != ''"),
			`the API server asks no webhook about "validatingwebhookconfigurations", so in a cluster Gatehouse never judges them (hint: apply the policy to the cluster, as a ValidatingAdmissionPolicy) [operation]`,
		},
		"resources of the other scope": {
			"{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [namespaces, configmaps, nodes], scope: Namespaced}", validations("request.name != ''"),
			`"namespaces" is not of scope Namespaced, so this never matches (hint: drop scope, or the resource) [scope]
"nodes" is not of scope Namespaced, so this never matches (hint: drop scope, or the resource) [scope]`,
		},
		"an expression of constants": {
			podRule, validations("[1, 2, 3].all(i, i < 5) && 'abc'.startsWith('a')"),
			`"[1, 2, 3].all(i, i < 5) && 'abc'.startsWith('a')" is always true, so nothing violates it [constant]`,
		},
		"a condition that is always true": {
			podRule, "matchConditions: [{name: c, expression: 'true'}]\n" + validations("object.metadata.name != ''"),
			`"true" is always true (hint: drop the condition) [constant]`,
		},
		"three loops in each other": {
			podRule, validations("object.spec.containers.all(a, object.spec.containers.all(b, object.spec.containers.all(c, a.name + b.name != c.name)))"),
			`"object.spec.containers.all(a, object.spec.containers.all(b, object.spec.containe…" costs up to 1302514 for lists of 30 elements; at 1000000 the API server gives up, and the request is refused (hint: take loops apart with variables, or narrow the lists down first) [expensive]`,
		},
		"a regular expression from the old object": {
			podRule, validations("oldObject == null || matches(object.metadata.name, oldObject.metadata.generateName)"),
			`1:29 in "oldObject == null || matches(object.metadata.name, oldObject.metadata.generateNa…": matches takes its regular expression from the object, so who writes the object decides what matches (hint: compare with ==, startsWith or endsWith) [regex]`,
		},
		"conditions that are constraints": {
			podRule, `matchConditions:
- {name: a, expression: "!(request.namespace in ['a', 'b'])"}
- {name: b, expression: "'Pod' == request.kind.kind"}
- {name: c, expression: "request.operation != 'UPDATE'"}
` + validations("object.metadata.name != ''"),
			`"!(request.namespace in ['a', 'b'])" is what namespaceSelector says (hint: write namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [a, b]}]} and drop the condition) [match-condition]
"'Pod' == request.kind.kind" is what resourceRules say (hint: name it in resourceRules and drop the condition) [match-condition]
"request.operation != 'UPDATE'" is what operations in resourceRules say (hint: write operations: [CREATE] and drop the condition) [match-condition]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, want := bare(lintText(t, with(c.rule, c.spec))), c.want; got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// bare are diagnostics without policy and field.
func bare(found string) string {
	lines := strings.Split(found, "\n")
	for i, line := range lines {
		_, rest, _ := strings.Cut(line, ": ")
		_, lines[i], _ = strings.Cut(rest, ": ")
	}
	return strings.Join(lines, "\n")
}

// TestNothingFound has policies that look like those above and are right, or of
// which nothing is known.
func TestNothingFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rule, spec string }{
		"fields named by words of CEL": {podRule, validations("object.metadata.namespace != 'a'")},
		"fields that the API server sets": {podRule, validations(
			"object.spec.securityContext != null && object.spec.dnsPolicy == 'Default' && object.spec.containers.all(c, c.imagePullPolicy == 'Always' && c.image != '')",
		)},
		"structures that are always written": {deploymentRule, validations("object.spec.template.spec.containers.all(c, has(c.resources.limits))")},
		"tests of fields and keys": {podRule, validations(
			"has(object.metadata.labels) && 'team' in object.metadata.labels && object.metadata.labels['team'] == 'a'",
			"has(object.metadata.annotations) && has(object.metadata.annotations.owner) && object.metadata.annotations.owner != ''",
			"!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))",
			"object.spec.?hostNetwork.orValue(false) == false",
			"object.spec.containers.all(c, c.?securityContext.privileged.orValue(false) == false)",
			"object.metadata.?labels[?'team'].orValue('') != ''",
			"object.metadata.?annotations.orValue({}).all(k, object.metadata.annotations[k] != '')",
		)},
		"a test in a condition": {podRule, "matchConditions: [{name: c, expression: 'has(object.spec.nodeName)'}]\n" + validations("object.spec.nodeName != ''")},
		"a test in a variable": {podRule, "variables: [{name: labelled, expression: \"has(object.metadata.labels) && 'team' in object.metadata.labels\"}]\n" +
			validations("variables.labelled && object.metadata.labels.team == 'a'")},
		"an optional field when failures are ignored": {podRule, "failurePolicy: Ignore\n" + validations("object.spec.nodeName != ''")},
		"an optional field in a message":              {podRule, "validations: [{expression: \"object.metadata.name != ''\", messageExpression: object.spec.nodeName}]"},
		"optional fields of other kinds":              {deploymentRule, validations("object.spec.replicas <= 5 && object.status.readyReplicas < 3")},
		"labels of params and namespaces":             {deploymentRule, "paramKind: {apiVersion: v1, kind: ConfigMap}\n" + validations("params.data.max != '' && namespaceObject.metadata.labels.env == 'a'")},
		"kinds told apart by kind":                    {severalRule, validations("object.kind != 'Deployment' || object.spec.replicas <= 5")},
		"kinds told apart by request":                 {severalRule, validations("request.resource.resource != 'deployments' || object.spec.replicas <= 5")},
		"kinds told apart by presence":                {severalRule, validations("!has(object.spec.replicas) || object.spec.replicas <= 5")},
		"kinds told apart by an optional field":       {severalRule, validations("object.spec.?replicas.orValue(1) <= 5")},
		"pods and pod templates":                      {templateRules, "variables: [{name: spec, expression: 'has(object.spec.template) ? object.spec.template.spec : object.spec'}]\n" + validations("variables.spec.containers.all(c, c.image != '')")},
		"containers of several kinds":                 {podRule, validations("(object.spec.containers + object.spec.?initContainers.orValue([]) + object.spec.?ephemeralContainers.orValue([])).all(c, c.image != '')")},
		"a structure and a map":                       {podRule, validations("object.spec.containers.all(c, c.?resources.orValue({}) != {})", "'nodeName' in object.spec || object.spec['dnsPolicy'] == 'Default'")},
		"numbers and texts where both are allowed":    {"{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [services]}", validations("object.spec.ports.all(p, p.targetPort == 80 || p.targetPort == 'http')")},
		"quantities":                                {podRule, validations("object.spec.containers.all(c, quantity(c.resources.?limits[?'cpu'].orValue('0')).isLessThan(quantity('2')))")},
		"times and bytes":                           {"{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [secrets]}", validations("timestamp(object.metadata.creationTimestamp) < timestamp('2030-01-01T00:00:00Z') && object.data.all(k, object.data[k] != 'eA==')")},
		"a scope":                                   {"{apiGroups: ['', example.com], apiVersions: [v1], operations: [CREATE], resources: [namespaces, things], scope: Cluster}", validations("request.name != ''")},
		"resources that are not known":              {"{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [things]}", validations("object.spec.anything == 1")},
		"all resources":                             {"{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE, UPDATE], resources: ['*']}", validations("object.spec.anything == 1")},
		"a subresource that is not known":           {"{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods/other]}", validations("object.spec.anything == 1")},
		"all subresources":                          {"{apiGroups: [''], apiVersions: [v1], operations: [CONNECT], resources: [pods/*]}", validations("object.anything == 1")},
		"the old object of what is deleted":         {deleteRule, validations("oldObject.metadata.name == 'a'")},
		"the object asked for null":                 {anyRule, "variables: [{name: name, expression: object.metadata.name}]\n" + validations("object == null || variables.name != ''")},
		"the operation asked for":                   {anyRule, validations("request.operation in ['DELETE', 'CONNECT'] || object.metadata.name != ''")},
		"a field of the object asked for":           {anyRule, validations("has(object.metadata) && object.metadata.name != ''", "object.?metadata.?name.orValue('a') != ''")},
		"a condition by operation":                  {anyRule, "matchConditions: [{name: c, expression: \"request.operation == 'CREATE' || request.dryRun\"}]\n" + validations("object.metadata.name != ''")},
		"conditions about people":                   {podRule, "matchConditions: [{name: c, expression: \"!('system:nodes' in request.userInfo.groups)\"}, {name: d, expression: \"request.resource.group != 'a'\"}]\n" + validations("object.metadata.name != ''")},
		"the authorizer":                            {podRule, validations("authorizer.requestResource.check('use').allowed() || authorizer.group('apps').resource('deployments').check('create').allowed()")},
		"all that is matched is refused":            {execRule, validations("false")},
		"optional values of variables and elements": {podRule, "variables: [{name: v, expression: 'object.spec.?nodeName'}, {name: d, expression: 'dyn(object.metadata)'}]\n" + validations("variables.v.orValue('') != '' && variables.d[?'name'].orValue('') != '' && [1].first().hasValue()")},
		"a regular expression of params":            {podRule, "paramKind: {apiVersion: v1, kind: ConfigMap}\n" + validations("object.spec.containers.all(c, c.image.matches(params.data.images) && c.name.matches('^[a-z]+$'))")},
		"two loops in each other":                   {podRule, validations("object.spec.containers.all(a, object.spec.containers.exists_one(b, a.name == b.name))")},
		"several groups, each with one of the resources": {
			"{apiGroups: [apps, batch], apiVersions: [v1], operations: [CREATE], resources: [deployments, jobs, cronjobs]}", validations("request.name != 'a'"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := lintText(t, with(c.rule, c.spec)); got != "" {
				t.Errorf("found\n%s", got)
			}
		})
	}
}

// TestBeingDeleted has which conditions and validations spare what is being
// deleted.
func TestBeingDeleted(t *testing.T) {
	t.Parallel()
	condition := func(expression string) string {
		return fmt.Sprintf("matchConditions: [{name: c, expression: %q}]\n", expression) + validations("object.metadata.name != ''")
	}
	variables := func(expression, rule string) string {
		return fmt.Sprintf("variables: [{name: leaving, expression: %q}, {name: again, expression: variables.leaving}]\n", expression) + validations(rule)
	}
	const deleted = "has(object.metadata.deletionTimestamp)"
	for name, c := range map[string]struct {
		spec string
		want bool
	}{
		"a condition":                     {condition("!" + deleted), true},
		"of the old object":               {condition("!has(oldObject.metadata.deletionTimestamp)"), true},
		"of both":                         {condition("!(has(oldObject.metadata.deletionTimestamp) && " + deleted + ")"), true},
		"optional":                        {condition("!object.metadata.?deletionTimestamp.hasValue()"), true},
		"optional of all":                 {condition("!object.?metadata.?deletionTimestamp.hasValue()"), true},
		"optional, none":                  {condition("object.metadata.?deletionTimestamp == optional.none()"), true},
		"optional, null instead":          {condition("object.metadata.?deletionTimestamp.orValue(null) == null"), true},
		"optional, a string instead":      {condition("object.metadata.?deletionTimestamp.orValue('') == ''"), true},
		"by an index":                     {condition("object.metadata[?'deletionTimestamp'].orValue(null) == null"), true},
		"in":                              {condition("!('deletionTimestamp' in object.metadata)"), true},
		"by a loop":                       {condition("[object].all(o, !has(o.metadata.deletionTimestamp))"), true},
		"and":                             {condition("object.metadata.name != 'x' && !" + deleted), true},
		"or":                              {condition("object.metadata.name == 'x' || !" + deleted), true},
		"or, on creation":                 {condition("oldObject == null || !" + deleted), true},
		"or, by operation":                {condition("request.operation == 'CREATE' || !" + deleted), true},
		"or, by person":                   {condition("request.userInfo.username == 'x' || !" + deleted), true},
		"chosen":                          {condition(deleted + " ? object.metadata.name == 'x' : true"), true},
		"or, if one thing changes":        {condition("!" + deleted + " || object.metadata.name == 'x' && object.spec != oldObject.spec"), true},
		"a validation":                    {validations(deleted + " || object.spec.hostname != ''"), true},
		"a validation, chosen":            {validations(deleted + " ? true : object.spec.hostname != ''"), true},
		"a validation, by a variable":     {variables(deleted, "variables.leaving || object.spec.?hostname.orValue('') != ''"), true},
		"a validation, by two variables":  {variables(deleted, "variables.again || object.spec.?hostname.orValue('') != ''"), true},
		"a variable for what is there":    {variables("object.metadata.?deletionTimestamp", "variables.leaving.hasValue() || object.spec.?hostname.orValue('') != ''"), true},
		"only what is being deleted":      {condition(deleted), false},
		"nothing while it is deleted":     {validations("!" + deleted + " || object.spec == oldObject.spec"), false},
		"refused while it is deleted":     {validations("!" + deleted), false},
		"if the rest changes":             {condition("oldObject == null || !has(oldObject.metadata.deletionTimestamp) || object.spec != oldObject.spec"), false},
		"if the rest changes, negated":    {condition("!(oldObject != null && has(oldObject.metadata.deletionTimestamp) && object.spec == oldObject.spec)"), false},
		"if one of two things changes":    {condition("!(" + deleted + " && object.spec == oldObject.spec && object.metadata.?labels == oldObject.metadata.?labels)"), false},
		"if it keeps finalizers":          {condition("!" + deleted + " || has(object.metadata.finalizers)"), false},
		"by a variable that compares":     {variables("object.spec != oldObject.spec", "!("+deleted+" && variables.leaving)"), false},
		"a variable that no rule is of":   {variables(deleted, "object.spec.?hostname.orValue('') != ''"), false},
		"a test that makes no difference": {condition("has(object.metadata.deletionTimestamp) || true"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := lintText(t, with("{apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [pods]}", c.spec))
			if got := strings.Count(found, "[being-deleted]"); got > 1 || (got == 1) != c.want {
				t.Errorf("found\n%s", found)
			}
		})
	}
}

// TestUnknownVariables checks what reads a variable whose expression does not
// compile as if the variable could be anything, and nothing else so.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	const variables = `variables:
- {name: unparsed, expression: "object.spec ="}
- {name: unchecked, expression: "objct.spec"}
- {name: chained, expression: "variables.unchecked.x + 1"}
`
	for expression, want := range map[string]string{
		"variables.unparsed.a.b > 3 && variables.unchecked.c == variables.chained": "",
		"variables.unparsed.a > 3 && object.spec.hstNetwork":                       `1:40 in "variables.unparsed.a > 3 && object.spec.hstNetwork": for v1 Pod: there is no field "hstNetwork" in core/v1.PodSpec (hint: did you mean "hostNetwork"?) [type]`,
	} {
		if got := bare(lintText(t, with("", variables+validations(expression)))); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", expression, got, want)
		}
	}
}

func TestLiterals(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`quantity('xyz').isGreaterThan(quantity('1Gi')) || object.metadata.name == 'x'`: `quantity("xyz") fails whenever it is evaluated: `,
		`object.spec.containers.all(c, c.name == string(1 / 0))`:                        `1 / 0 fails whenever it is evaluated: division by zero`,
		`cidr('10.0.0.0/33').containsIP(object.spec.hostIP)`:                            `cidr("10.0.0.0/33") fails whenever it is evaluated: `,
		`object.metadata.name == 'x' || int('ten') > 3`:                                 `int("ten") fails whenever it is evaluated: `,
		`isQuantity('xyz') || object.metadata.name == 'x'`:                              "",
		`quantity('1Gi').isLessThan(quantity(object.metadata.name))`:                    "",
		`object.spec.priority / 0 == 1`:                                                 "",
		// Compile reports these.
		`duration('5y') > duration('1h') || object.metadata.name.matches('[')`: "",
	} {
		found := lintText(t, with("", validations(expression)))
		most := 1
		if want == "" {
			most = 0
		}
		if strings.Count(found, "[invalid-literal]") != most || !strings.Contains(found, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", expression, found, want)
		}
	}
}

// TestPodSecurityVersion knows the standards of the library's version, and no
// newer ones.
func TestPodSecurityVersion(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../../../../go.mod")
	must(t, err)
	library := regexp.MustCompile(`k8s\.io/pod-security-admission v0\.(\d+)\.`).FindStringSubmatch(string(mod))
	if library == nil {
		t.Fatal("go.mod does not name the library")
	}
	newest, err := strconv.Atoi(library[1])
	must(t, err)
	for version, want := range map[string]string{
		"":                             "",
		"latest":                       "",
		"v1.25":                        "",
		"V1":                           "",
		fmt.Sprintf("v1.%d", newest):   "",
		fmt.Sprintf("v1.%d", newest+1): fmt.Sprintf(`"v1.%d" is not known here yet, and means "v1.%d" until it is`, newest+1, newest),
	} {
		got := lintText(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: p}\n"+
			"spec: {podSecurity: {level: baseline, version: '"+version+"'}, matchConstraints: {resourceRules: ["+podRule+"]}}\n")
		if want != "" {
			want = "AdmissionPolicy/p: spec.podSecurity.version: " + want + fmt.Sprintf(" (hint: write v1.%d or latest) [pod-security-version]", newest)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", version, got, want)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
