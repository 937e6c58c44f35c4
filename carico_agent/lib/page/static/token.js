// The form that asks for a token where the server wants one.
import { byId, show } from "./dom.js";

export function askForToken() {
  show(byId("token-form"), true);
  byId("token").focus();
}

export function onToken(take) {
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    take(byId("token").value.trim());
    byId("token").value = "";
  });
}
