package differential_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// grammar has the texts that a symbol, such as <any>, can stand for; name0 has those of the
// symbol where no other symbol may follow.
var grammar = map[string][]string{
	"any0": {"<path>", "<path>", "dyn(<literal>)"},
	"any": {
		"string(<any>)", "int(<any>)", "uint(<any>)", "double(<any>)", "bool(<any>)", "bytes(<any>)", "size(<any>)", "type(<any>)", "dyn(<any>)", "-<any>",
		"quantity(string(<any>))", "timestamp(<any>)", "duration(<any>)", "optional.ofNonZeroValue(<any>)",
		"(<any> + <any>)", "(<any> <operator> <any>)", "(<bool> ? dyn(<any>) : dyn(<any>))", "<any>.orValue(<any>)", "[<any>, <any>]", "{'a': <any>}",
		"<any>.filter(x, <item>)", "<any>[<index>]", "string(<any>).<method>", "<any>.?<field>", "<any>.?<field>.orValue('none')", "<any>.?<field>.hasValue()",
	},
	"operator": {"-", "*", "/", "%"},
	"index":    {"0", "1", "-1", "'a'", "1.0", "dyn(0.0)", "dyn(1.5)", "dyn('a')", "dyn(1u)", "null"},
	"method":   {"lowerAscii()", "upperAscii()", "trim()", "split(',')", "replace('a', 'b')", "substring(1)", "indexOf('a')", "charAt(0)"},
	"field":    {"a", "b", "name", "spec", "labels"},
	"literal": {
		"<string>", "<string>", "<string>", "null", "true", "false", "0", "1", "-1", "1u", "1.0", "1.5", "80", "9007199254740993", "9223372036854775807",
		"-9223372036854775808", "1e30", "0.1", "[]", "{}", "[1]", "['a', 'b']", "[1, 'a', null]", "{'a': 1}", "{'a': null}", "[[1], [2]]", "{'env': 'prod'}",
		"b'a'", "duration('1h')", "timestamp('2026-01-02T03:04:05Z')", "quantity('1Gi')", "double('NaN')", "optional.of(1)", "optional.none()", "type(1)", "string", "int",
	},
	"item": {
		"x == 'a'", "has(x.name)", "x.name == 'a'", "x > 1", "x != null", "x.v == 1", "x in ['a', 1]", "string(x) == 'a'", "type(x) == string", "x == <any>",
	},
	"bool0": {"true", "false", "<path> == <literal>", "has(<selection>)"},
	"bool": {
		"<any> <equal> <any>", "<any> <equal> <any>", "<any> <equal> <any>", "<any> <equal> <literal>", "<any> <equal> <literal>", "<any> <order> <any>", "<any> in <any>",
		"(<bool> && <bool>)", "(<bool> || <bool>)", "!(<bool>)", "(<bool> ? <bool> : <bool>)", "has(<selection>)", "has(<selection>)",
		"<any>.all(x, <item>)", "<any>.exists(x, <item>)", "<any>.exists_one(x, <item>)", "cel.bind(x, <any>, <item>)", "string(<any>).<test>(<pattern>)",
		"quantity(string(<any>)).isLessThan(quantity('1'))", "<is>(string(<any>))", "timestamp(<any>) < timestamp('2030-01-01T00:00:00Z')", "!(double(<any>) > 5.0)",
		"type(<any>) == <type>", "sets.<sets>(<any>, <any>)", "<any>.isSorted()", "<any> == true", "<any>.hasValue()", "<asked>.check('<verb>').<answer>",
	},
	"equal":   {"==", "!="},
	"order":   {"<", "<=", ">", ">="},
	"test":    {"startsWith", "endsWith", "contains", "matches"},
	"pattern": {"'a'", "'web'", "''", "'^[a-z]+$'", "'1'"},
	"is":      {"isQuantity", "isURL", "isIP", "isCIDR", "isSemver"},
	"type":    {"int", "string", "double", "list", "map", "null_type", "bool", "type(<any>)"},
	"sets":    {"contains", "intersects", "equivalent"},
	"asked": {
		"authorizer.requestResource", "authorizer.path('/healthz')", "authorizer.serviceAccount('shop', 'web').group('').resource('pods')",
		"authorizer.group('apps').resource('deployments').name('web')", "authorizer.group('').resource('pods').namespace('shop')", "authorizer.group('').resource('pods').subresource('exec')",
	},
	"verb":   {"get", "create", "fail", "list"},
	"answer": {"allowed()", "errored()", "reason() == ''", "error() == ''"},
	"message": {
		"'seen'", "'  '", `'a\nb'`, "string(<any>)", "'is ' + string(<any>)", "'" + strings.Repeat("x", 100) + "' + string(<any>)",
		"string(request.userInfo.groups[0])", "'%s and %v'.format([<any>, 1])", "type(<any>) == string ? string(<any>) : 'other'",
	},
	"note": {"<message>", "null", "'  '", "<bool> ? 'yes' : ''"},
}

var symbol = regexp.MustCompile(`<[a-z]+>`)

// expand returns a text for a symbol, in which symbols stand in others up to a depth.
func (g *generator) expand(name string, depth int) string {
	switch name {
	case "path":
		return g.path()
	case "string":
		return celString(g.text())
	case "selection":
		path := g.path()
		if strings.HasSuffix(path, "]") || !strings.Contains(path, ".") || strings.Contains(path, ".?") {
			path += "." + g.of(grammar["field"]...)
		}
		return path
	}
	all := grammar[name]
	if leaves := grammar[name+"0"]; leaves != nil && (depth <= 0 || name == "any" && g.maybe(0.35)) {
		all = leaves
	}
	return symbol.ReplaceAllStringFunc(g.of(all...), func(s string) string { return g.expand(s[1:len(s)-1], depth-1) })
}

// celString returns a string literal of CEL.
func celString(s string) string {
	var out strings.Builder
	for _, r := range s {
		switch {
		case r == '\'' || r == '\\':
			out.WriteString("\\" + string(r))
		case r < ' ':
			fmt.Fprintf(&out, "\\u%04x", r)
		default:
			out.WriteRune(r)
		}
	}
	return "'" + out.String() + "'"
}

// fixedPaths and paramPaths are what expressions can name whatever the request.
var (
	fixedPaths = []string{
		"object", "oldObject", "object.metadata", "object.metadata.labels", "object.metadata.name", "object.spec", "object.status", "oldObject.spec", "object.data", "object.kind",
		"request", "request.name", "request.namespace", "request.operation", "request.subResource", "request.kind", "request.kind.version", "request.resource", "request.resource.group",
		"request.requestKind.kind", "request.requestResource.version", "request.requestSubResource", "request.dryRun", "request.options", "request.userInfo", "request.userInfo.username",
		"request.userInfo.groups", "request.userInfo.extra", "request.userInfo.uid", "request.options.fieldManager", "namespaceObject", "namespaceObject.metadata.name",
		"namespaceObject.metadata.labels", "namespaceObject.metadata.annotations", "namespaceObject.status.phase", "object.spec.replicas", "object.spec.containers", "object.a", "object.spec.a", "object.spec.list",
	}
	paramPaths = []string{
		"params", "params", "params.data", "params.data.team", "params.spec", "params.spec.all", "params.spec.list", "params.metadata.name", "params.metadata.labels",
		"params.kind", "params.data.maxReplicas", "params.parameters",
	}
)

// path returns something that expressions can name.
func (g *generator) path() string {
	if len(g.paths) == 0 || g.maybe(0.35) {
		return g.of(slices.Concat(fixedPaths, g.names)...)
	}
	path := g.of(g.paths...)
	switch g.Intn(10) {
	case 0:
		return path + ".missing"
	case 1:
		return path + "[" + g.of(grammar["index"]...) + "]"
	case 2:
		if i := strings.LastIndex(path, "."); i > 0 {
			return path[:i] + ".?" + path[i+1:]
		}
	}
	return path
}
