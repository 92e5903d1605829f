package ondisk

import (
	"fmt"
	"reflect"
	"time"
)

// firstDifference names the first difference between two values of one type, a from the disks and b from the report. An empty
// slice equals nil.
func firstDifference(place string, a, b reflect.Value) string {
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() != b.IsNil() {
			return fmt.Sprintf("%s: %v on the disks, %v in LVM's report", place, !a.IsNil(), !b.IsNil())
		}
		if a.IsNil() {
			return ""
		}
		return firstDifference(place, a.Elem(), b.Elem())
	case reflect.Slice:
		for i := range min(a.Len(), b.Len()) {
			if diff := firstDifference(place+elementName(a.Index(i), i), a.Index(i), b.Index(i)); diff != "" {
				return diff
			}
		}
		if a.Len() != b.Len() {
			return fmt.Sprintf("%s: %d on the disks, %d in LVM's report", place, a.Len(), b.Len())
		}
		return ""
	case reflect.Struct:
		if moment, is := a.Interface().(time.Time); is && moment.Equal(b.Interface().(time.Time)) {
			return ""
		} else if !is {
			for i := range a.NumField() {
				if diff := firstDifference(place+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i)); diff != "" {
					return diff
				}
			}
			return ""
		}
	default:
		if a.Equal(b) {
			return ""
		}
	}
	return fmt.Sprintf("%s: %v on the disks, %v in LVM's report", place, a.Interface(), b.Interface())
}

// elementName returns the name by which an admin knows an element: its name field, if it has one.
func elementName(element reflect.Value, i int) string {
	if element.Kind() == reflect.Struct {
		for _, field := range []string{"Name", "UUID"} {
			if f := element.FieldByName(field); f.IsValid() {
				return "[" + f.String() + "]"
			}
		}
	}
	return fmt.Sprintf("[%d]", i)
}
