package report

import (
	"fmt"
	"net/url"
	"strings"
)

// Query returns the query for a page with the node's capacity for these storage classes: parameters by the class's name.
func Query(classes map[string]map[string]string) url.Values {
	query := url.Values{}
	for name, parameters := range classes {
		values := url.Values{}
		for key, value := range parameters {
			values.Set(key, value)
		}
		query.Add("class", name+"?"+values.Encode())
	}
	return query
}

// ParseClass parses one value of the query's "class": a class's name and its parameters.
func ParseClass(value string) (name string, parameters map[string]string, err error) {
	name, rest, _ := strings.Cut(value, "?")
	values, err := url.ParseQuery(rest)
	if err != nil {
		return name, nil, fmt.Errorf("the query's class %q is not NAME?PARAMETER=VALUE&...: %w", name, err)
	}
	parameters = make(map[string]string, len(values))
	for key := range values {
		parameters[key] = values.Get(key)
	}
	return name, parameters, nil
}
