package groupsource

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Page is a page of groups of Microsoft Graph.
type Page struct {
	Names []string
	// Next is the URL of the next page, "" on the last.
	Next string
}

// graphProperties are the properties of a group that can be its name.
func graphProperties() []string { return []string{DefaultNameProperty, "displayName"} }

// ParsePage parses a page. Each group must have the property; the error holds nothing of the
// answer.
func ParsePage(answer []byte, property string) (*Page, error) {
	members, err := objectOf(answer)
	if err != nil {
		return nil, err
	}
	page := &Page{Next: members["@odata.nextLink"].Text()}
	if link, ok := members["@odata.nextLink"]; ok && link.Kind() != rawjson.String {
		return nil, fmt.Errorf("%w: @odata.nextLink is not a string", errInvalidAnswer)
	}
	value, ok := members["value"]
	if !ok || value.Kind() != rawjson.Array {
		return nil, fmt.Errorf("%w: it has no list named value", errInvalidAnswer)
	}
	for _, element := range value.Elements() {
		group, err := objectOf(element)
		if err != nil {
			return nil, err
		}
		name, ok := group[property]
		if !ok || name.Kind() != rawjson.String {
			return nil, fmt.Errorf("%w: a group has no %s", errInvalidAnswer, property)
		}
		page.Names = append(page.Names, name.Text())
	}
	return page, nil
}

// ParseToken parses the answer of a token endpoint (RFC 6749, 5.1). The error holds nothing
// of it.
func ParseToken(answer []byte) (token string, seconds int64, err error) {
	members, err := objectOf(answer)
	if err != nil {
		return "", 0, err
	}
	token = members["access_token"].Text()
	if token == "" {
		return "", 0, fmt.Errorf("%w: it has no access_token", errInvalidAnswer)
	}
	if json.Unmarshal(members["expires_in"], &seconds) != nil || seconds < 0 {
		return "", 0, fmt.Errorf("%w: expires_in is not a number of seconds", errInvalidAnswer)
	}
	return token, seconds, nil
}

// objectOf returns the members of an object, each once.
func objectOf(text []byte) (map[string]rawjson.Value, error) {
	value, err := rawjson.Parse(text)
	if err != nil || value.Kind() != rawjson.Object {
		return nil, fmt.Errorf("%w: it is not a JSON object", errInvalidAnswer)
	}
	if _, twice := value.DuplicateKey(); twice {
		return nil, fmt.Errorf("%w: it has a member twice", errInvalidAnswer)
	}
	members := map[string]rawjson.Value{}
	for name, member := range value.Members() {
		members[name.Text()] = member
	}
	return members, nil
}

// isGraphProperty reports whether a property can be the name of a group.
func isGraphProperty(name string) bool { return slices.Contains(graphProperties(), name) }
