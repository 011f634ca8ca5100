// A long piece of work goes on by itself, a step at a time; without this file, by the button.
const form = document.querySelector("form[data-onward]");
if (form) form.submit();
