package groupsource

import (
	"fmt"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Page is a page of groups of Microsoft Graph.
type Page struct {
	Names []string
	// Next is the URL of the next page, "" on the last.
	Next string
}

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
